//! Headless Chromium, driven over its debugging pipe: commands and events in JSON, each followed by a zero
//! byte.

use crate::support::Workspace;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A browser with one page, stopped when dropped.
pub(crate) struct Browser {
    process: Child,
    commands: File,
    messages: Receiver<Value>,
    /// Unread events.
    events: Vec<Value>,
    session: Option<String>,
    last_id: u64,
}

impl Browser {
    /// Starts a browser with an empty page, which saves downloads to `downloads`.
    pub(crate) fn start(workspace: &Workspace, downloads: &Path) -> Self {
        let [commands, messages] = ["commands", "messages"].map(|name| workspace.path(name));
        let made = Command::new("mkfifo").arg(&commands).arg(&messages).status();
        assert!(made.expect("mkfifo").success());
        // --remote-debugging-pipe uses the descriptors 3 and 4.
        let script = r#"exec "$0" "$@" 3<"$COMMANDS" 4>"$MESSAGES""#;
        let process = Command::new("sh")
            .args(["-c", script, "chromium"])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args(["--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", workspace.path("chromium").display()))
            .arg("about:blank")
            .env("COMMANDS", &commands)
            .env("MESSAGES", &messages)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let commands = File::options().write(true).open(commands).expect("the commands");
        let messages = receive(File::open(messages).expect("the messages"));
        let mut browser =
            Self { process, commands, messages, events: Vec::new(), session: None, last_id: 0 };
        let target = browser.send("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.send("Target.attachToTarget", &attach)["sessionId"].clone();
        browser.session = session.as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.send(domain, &json!({}));
        }
        fs::create_dir_all(downloads).expect("a folder");
        let behavior = json!({ "behavior": "allow", "downloadPath": downloads });
        browser.send("Page.setDownloadBehavior", &behavior);
        browser
    }

    /// Accepts any certificate of servers.
    pub(crate) fn ignore_certificates(&mut self) {
        self.send("Security.setIgnoreCertificateErrors", &json!({ "ignore": true }));
    }

    /// Opens a URL and waits until the page is loaded.
    pub(crate) fn open(&mut self, url: &str) {
        self.events.clear();
        let opened = self.send("Page.navigate", &json!({ "url": url }));
        assert!(opened.get("errorText").is_none(), "{url}: {opened}");
        self.wait_for("Page.loadEventFired");
    }

    /// Waits for one event of this kind.
    pub(crate) fn wait_for(&mut self, method: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.events.iter().position(|event| event["method"] == method) {
                self.events.remove(at);
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left);
            self.events.push(message.unwrap_or_else(|_| panic!("no {method} within {PATIENCE:?}")));
        }
    }

    /// Evaluates an expression and awaits it if it is a promise.
    pub(crate) fn evaluate(&mut self, script: &str) -> Value {
        let parameters =
            json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let reply = self.send("Runtime.evaluate", &parameters);
        assert!(reply.get("exceptionDetails").is_none(), "{script}: {reply:#}");
        reply["result"]["value"].clone()
    }

    /// Evaluates scripts, each of which sends one request, and returns the requests as HAR, as the browser's own tools
    /// make it from the same events.
    pub(crate) fn har(&mut self, scripts: &[&str]) -> Value {
        self.send("Network.enable", &json!({}));
        self.events.clear();
        for script in scripts {
            self.evaluate(script);
        }
        // Not those that the browser sends by itself, such as for an icon.
        let count = scripts.len();
        let of_scripts = |event: &Value| event["params"]["type"] == "Fetch";
        let sent = self.take_events("Network.requestWillBeSent", count, of_scripts);
        let responses = self.take_events("Network.responseReceived", count, of_scripts);
        let is_sent = |event: &Value| {
            sent.iter().any(|sent| sent["requestId"] == event["params"]["requestId"])
        };
        let extra = self.take_events("Network.requestWillBeSentExtraInfo", count, is_sent);
        let of = |events: &[Value], id: &Value| -> Value {
            let found = events.iter().find(|event| event["requestId"] == *id);
            found.unwrap_or_else(|| panic!("no event of {id}: {events:?}")).clone()
        };
        let entries: Vec<Value> = sent
            .iter()
            .map(|event| {
                let request = &event["request"];
                let headers = of(&extra, &event["requestId"])["headers"].clone();
                let headers = headers.as_object().expect("headers");
                let headers: Vec<Value> = headers
                    .iter()
                    .map(|(name, value)| json!({ "name": name, "value": value }))
                    .collect();
                let seconds = event["wallTime"].as_f64().expect("a time");
                let started = jiff::Timestamp::from_microsecond((seconds * 1e6) as i64);
                let mut entry = json!({
                    "pageref": "page_1",
                    "startedDateTime": started.expect("a time").to_string(),
                    "request": { "method": request["method"], "url": request["url"], "headers": headers },
                    "response": { "status": of(&responses, &event["requestId"])["response"]["status"] },
                });
                if let Some(text) = request["postData"].as_str() {
                    entry["request"]["postData"] = json!({ "mimeType": "", "text": text });
                }
                entry
            })
            .collect();
        json!({ "log": { "version": "1.2", "entries": entries } })
    }

    /// Takes the parameters of this many events of a kind, for which it waits.
    fn take_events(
        &mut self,
        method: &str,
        count: usize,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (found, others) = std::mem::take(&mut self.events)
                .into_iter()
                .partition::<Vec<Value>, _>(|event| event["method"] == method && is_wanted(event));
            self.events = others;
            if found.len() >= count {
                return found.into_iter().map(|event| event["params"].clone()).collect();
            }
            self.events.extend(found);
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left);
            self.events.push(message.unwrap_or_else(|_| panic!("no {method} within {PATIENCE:?}")));
        }
    }

    /// Sets the width of the window and the color scheme, `light` or `dark`.
    pub(crate) fn resize(&mut self, width: u32, scheme: &str) {
        let metrics =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.send("Emulation.setDeviceMetricsOverride", &metrics);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.send("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    pub(crate) fn disable_scripts(&mut self) {
        self.send("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    }

    /// Returns the whole page as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        use base64::Engine as _;
        let shot = self.send("Page.captureScreenshot", &json!({ "captureBeyondViewport": true }));
        let text = shot["data"].as_str().expect("a screenshot");
        base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
    }

    /// Returns exceptions and console messages since the page was opened, without those on status codes of
    /// 400 and above.
    pub(crate) fn errors(&self) -> Vec<String> {
        let is_error = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["source"] != "network",
            _ => false,
        };
        self.events.iter().filter(is_error).map(Value::to_string).collect()
    }

    fn send(&mut self, method: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let bytes = [message.to_string().as_bytes(), b"\0"].concat();
        self.commands.write_all(&bytes).expect("the browser listens");
        loop {
            let reply = self.messages.recv_timeout(PATIENCE);
            let reply = reply.unwrap_or_else(|error| panic!("{method}: {error}"));
            if reply["id"] == self.last_id {
                assert!(reply.get("error").is_none(), "{message}: {reply}");
                return reply["result"].clone();
            }
            self.events.push(reply);
        }
    }
}

/// Deadline for one step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads messages on a thread, so that receiving can time out.
fn receive(messages: File) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(messages);
        let mut bytes = Vec::new();
        while reader.read_until(0, &mut bytes).is_ok_and(|count| count > 0) {
            bytes.pop();
            let message = serde_json::from_slice(&bytes).expect("JSON");
            bytes.clear();
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The shell has replaced itself with the browser, whose child processes end with it.
        self.process.kill().expect("the browser was running");
        self.process.wait().expect("the browser has ended");
    }
}
