use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tollgate_traffic::Message;

/// CrowdSec's engine as a running process, and the key of a bouncer that it knows.
pub(crate) struct Appsec {
    address: SocketAddr,
    key: String,
}

impl Appsec {
    /// The one that the environment names.
    pub(crate) fn of_environment() -> Self {
        let variable = |name: &str| {
            std::env::var(name)
                .unwrap_or_else(|_| panic!("set {name}, see the test's reason to be ignored"))
        };
        let address = variable("TOLLGATE_APPSEC").parse().unwrap();
        Self { address, key: variable("TOLLGATE_APPSEC_KEY") }
    }

    /// Asks about a request as a bouncer does: its line is told in headers, its own headers and its body
    /// go along.
    pub(crate) fn status(&self, message: &Message) -> u16 {
        let verb = if message.body.is_empty() { "GET" } else { "POST" };
        let mut lines = vec![format!("{verb} / HTTP/1.1"), "Connection: close".to_owned()];
        let mut told =
            |name: &str, value: &str| lines.push(format!("X-Crowdsec-Appsec-{name}: {value}"));
        told("Ip", "192.0.2.7");
        told("Uri", &message.path);
        told("Verb", &message.method);
        told("Api-Key", &self.key);
        for (name, value) in &message.headers {
            match name.to_ascii_lowercase().as_str() {
                "host" | "user-agent" => told(name, value),
                _ => {}
            }
        }
        let is_own = |name: &str| !name.eq_ignore_ascii_case("connection");
        let own = message.headers.iter().filter(|(name, _)| is_own(name));
        lines.extend(own.map(|(name, value)| format!("{name}: {value}")));
        let length = message.body.len();
        if length > 0 {
            lines.push(format!("Content-Length: {length}"));
        }
        let text = format!("{}\r\n\r\n{}", lines.join("\r\n"), message.body);
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }
}
