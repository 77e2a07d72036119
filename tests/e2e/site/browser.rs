//! Chromium without a window, driven over its debugging pipe: commands and events are JSON, a zero byte
//! after each.

use crate::support::Workspace;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A browser with one page, stopped when dropped.
pub(super) struct Browser {
    process: Child,
    commands: File,
    messages: Receiver<Value>,
    /// What the page has told meanwhile.
    events: Vec<Value>,
    session: Option<String>,
    last_id: u64,
}

impl Browser {
    /// A browser with an empty page. Files that are downloaded go into `downloads`.
    pub(super) fn start(workspace: &Workspace, downloads: &Path) -> Self {
        let [commands, messages] = ["commands", "messages"].map(|name| workspace.path(name));
        let made = Command::new("mkfifo").arg(&commands).arg(&messages).status();
        assert!(made.expect("mkfifo").success());
        // The pipe's ends are the descriptors 3 and 4 (its --help calls this --remote-debugging-pipe).
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

    /// Opens an address and waits until the page is there.
    pub(super) fn open(&mut self, url: &str) {
        self.events.clear();
        let opened = self.send("Page.navigate", &json!({ "url": url }));
        assert!(opened.get("errorText").is_none(), "{url}: {opened}");
        self.wait_for("Page.loadEventFired");
    }

    /// Waits until the page tells this, once.
    pub(super) fn wait_for(&mut self, method: &str) {
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

    /// The value of a script's expression, waited for where it is a promise.
    pub(super) fn evaluate(&mut self, script: &str) -> Value {
        let asked = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let answer = self.send("Runtime.evaluate", &asked);
        assert!(answer.get("exceptionDetails").is_none(), "{script}: {answer:#}");
        answer["result"]["value"].clone()
    }

    /// A window of this width, in the light or in the dark.
    pub(super) fn resize(&mut self, width: u32, scheme: &str) {
        let metrics =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.send("Emulation.setDeviceMetricsOverride", &metrics);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.send("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    pub(super) fn without_scripts(&mut self, without: bool) {
        self.send("Emulation.setScriptExecutionDisabled", &json!({ "value": without }));
    }

    /// The whole page as a PNG.
    pub(super) fn picture(&mut self) -> Vec<u8> {
        use base64::Engine as _;
        let shot = self.send("Page.captureScreenshot", &json!({ "captureBeyondViewport": true }));
        let text = shot["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
    }

    /// What the page complained of since it was opened: errors of its script, and what its console
    /// shows. That an answer has a status of 400 and more is shown there too, and is none.
    pub(super) fn complaints(&self) -> Vec<String> {
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["source"] != "network",
            _ => false,
        };
        self.events.iter().filter(is_complaint).map(Value::to_string).collect()
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
            let answer = self.messages.recv_timeout(PATIENCE);
            let answer = answer.unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == self.last_id {
                assert!(answer.get("error").is_none(), "{message}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }
}

/// How long a busy machine may take over one step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads messages on a thread of their own, so that waiting for one has an end.
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
        // The shell has become the browser, and its own processes end with it.
        self.process.kill().expect("the browser was running");
        self.process.wait().expect("the browser has ended");
    }
}
