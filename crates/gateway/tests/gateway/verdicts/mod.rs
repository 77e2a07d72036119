//! Listeners on which proxies ask for verdicts.

mod appsec;
mod forward_auth;
mod local_api;
mod spoe;

use tempfile::TempDir;
use tollgate_gateway::Config;

use crate::support::TestGateway;

const RULES: &str = r#"
SecRequestBodyAccess On
SecRule ARGS "@contains attack" "id:1,phase:2,deny,status:406,log,msg:'Attack'"
SecRule REQUEST_METHOD "!@within GET POST" "id:2,phase:1,deny,status:403,log,msg:'Method'"
SecRule REMOTE_ADDR "@ipMatch 192.0.2.0/24" "id:3,phase:1,deny,status:403,log,msg:'Address'"
SecRule REQUEST_HEADERS:Host "@streq evil.example" "id:4,phase:1,deny,status:403,log,msg:'Host'"
SecRule REQUEST_URI "@beginsWith /old" "id:5,phase:1,redirect:https://x.example/new,log,msg:'Moved'"
SecRule REQUEST_HEADERS_NAMES "@rx (?i)^(?:x-original-uri|x-forwarded-uri|connection)$" "id:6,phase:1,deny,status:403,log,msg:'Header'"
SecRule &REQUEST_HEADERS:Content-Length "@eq 0" "id:7,phase:1,deny,status:411,log,msg:'Length',chain"
    SecRule &REQUEST_HEADERS:Transfer-Encoding "@eq 0" chain
        SecRule REQUEST_METHOD "@streq POST"
"#;

/// A gateway that gives verdicts by [`RULES`].
struct Scene {
    gateway: TestGateway,
    folder: TempDir,
}

fn read(folder: &TempDir, listener: &str, more: &str) -> Config {
    let text = format!(
        "listeners: [{{ {listener} }}]\nwaf: {{ rules: [rules.conf] }}\nadmin: 127.0.0.1:0\n{more}"
    );
    let config = Config::parse_serve(&text, &folder.path().join("waf.yaml"));
    config.unwrap_or_else(|error| panic!("{error}"))
}

impl Scene {
    fn start(listener: &str, more: &str) -> Self {
        Self::with_rules(RULES, listener, more)
    }

    fn with_rules(rules: &str, listener: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rules.conf"), rules).unwrap();
        let gateway = TestGateway::start(&read(&folder, listener, more));
        Self { gateway, folder }
    }

    /// The responses to requests on one connection.
    #[track_caller]
    fn expect(&self, exchanges: &[(&str, &str)]) {
        let mut client = self.gateway.client();
        for (request, response) in exchanges {
            client.send(request);
            client.expect_dated(response);
        }
    }
}
