//! Files of `tollgate waf serve`, and the error of each invalid one.

use tollgate_waf::EngineMode;

use crate::config::{Action, Config};

#[test]
fn listeners_that_give_verdicts_need_an_address_a_description_and_rules() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.conf"), "SecAction \"id:1,pass\"").unwrap();
    let credentials = "url: http://127.0.0.1:1\ncert_path: a\nkey_path: b\n";
    std::fs::write(folder.path().join("certificate.yaml"), credentials).unwrap();
    let parse = |listener: &str, waf: &str| {
        let text = format!("listeners:\n  - {{ {listener} }}\n{waf}");
        Config::parse_serve(&text, &folder.path().join("w.yaml"))
    };
    let waf = "waf: { rules: [a.conf] }\n";
    let config = parse("forward-auth: 127.0.0.1:7423, proxy: nginx", waf).unwrap();
    assert_eq!(config.limits.header_bytes, 65536);
    assert!(config.listeners[0].http2);
    assert!(config.warnings[0].contains("attacks in bodies pass"), "{:?}", config.warnings);
    let responses = "waf: { rules: [a.conf], response_body: { limit: 1 } }";
    let config = parse("spoe: 127.0.0.1:1, responses: {}", responses).unwrap();
    assert!(!config.listeners[0].http2 && config.warnings.is_empty());
    for (listener, waf, expected) in [
        ("proxy: nginx", waf, "2:5: a listener has the address of one protocol"),
        ("forward-auth: 127.0.0.1:1, spoe: 127.0.0.1:2", waf, "a listener has the address of one"),
        ("spoe: 127.0.0.1:1, proxy: nginx", waf, "`proxy` has no effect with this protocol"),
        ("spoe: 127.0.0.1:1, keys: [a]", waf, "`keys` has no effect with this protocol"),
        (
            "forward-auth: 127.0.0.1:1, proxy: caddy, responses: {}",
            waf,
            "`responses` has no effect with this protocol",
        ),
        ("spoe: 127.0.0.1:1, responses: { max: 0 }", waf, "0 is out of range"),
        ("spoe: 127.0.0.1:1", responses, "`response_body` has no effect"),
        (
            "spoe: 127.0.0.1:1, applications: { a: { response_body: { limit: 1 } } }",
            waf,
            "`response_body` has no effect",
        ),
        ("spoe: 127.0.0.1:1, applications: {}", waf, "`applications` is empty"),
        ("spoe: 127.0.0.1:1, applications: { 'a b': {} }", waf, "`a b` is not the name of an"),
        ("spoe: 127.0.0.1:1, applications: { a: { rules: [none.conf] } }", waf, "none.conf"),
        (
            "spoe: 127.0.0.1:1, applications: { a: {} }, default-application: b",
            waf,
            "`b` is not one of `applications`",
        ),
        (
            "spoe: 127.0.0.1:1, default-application: b",
            waf,
            "`default-application` has no effect without `applications`",
        ),
        (
            "appsec: 127.0.0.1:1, keys: [a], applications: { a: {} }",
            waf,
            "`applications` has no effect with this protocol",
        ),
        (
            "appsec: 127.0.0.1:1",
            "waf: { rules: [a.conf] }\nlocal_api: {}",
            "missing key `url` of the local API",
        ),
        (
            "appsec: 127.0.0.1:1",
            "waf: { rules: [a.conf] }\nlocal_api: { url: 127.0.0.1 }",
            "`127.0.0.1` is not a URL",
        ),
        (
            "appsec: 127.0.0.1:1",
            "waf: { rules: [a.conf] }\nlocal_api: { credentials: certificate.yaml }",
            "`certificate.yaml` has a certificate, with which a login is not supported",
        ),
        ("spoe: 127.0.0.1:1", "", "2:5: missing key `waf` with the rules"),
        (
            "appsec: 127.0.0.1:1, forward-auth: 127.0.0.1:1",
            waf,
            "2:5: a listener has the address of one",
        ),
        ("appsec: 127.0.0.1:1", waf, "2:5: `keys` or `key-file` must have the keys"),
        ("appsec: 127.0.0.1:1, keys: ['a b']", waf, "2:5: `keys` or `key-file` must have the keys"),
        ("appsec: 127.0.0.1:1, key-file: none", waf, "cannot read the keys `"),
        ("appsec: 127.0.0.1:1, keys: [a], proxy: nginx", waf, "`proxy` has no effect with"),
        ("forward-auth: 127.0.0.1:1, proxy: nginx, keys: [a]", waf, "`keys` has no effect with"),
        ("forward-auth: a, proxy: nginx", waf, "`a` is not an address"),
        (
            "forward-auth: 127.0.0.1:1",
            waf,
            "2:5: missing key `proxy` (nginx, traefik, caddy or envoy)",
        ),
        ("forward-auth: 127.0.0.1:1, headers: { uri: 'a b' }", waf, "`a b` is not a header name"),
        ("forward-auth: 127.0.0.1:1, proxy: nginx", "", "2:5: missing key `waf` with the rules"),
        (
            "forward-auth: 127.0.0.1:1, proxy: nginx",
            "waf: { rules: [a.conf], block: { status: 429 } }",
            "nginx takes 401 and 403 from `auth_request`",
        ),
        (
            "forward-auth: 127.0.0.1:1, proxy: caddy",
            "waf: { rules: [a.conf], response_body: { limit: 1 } }",
            "`response_body` has no effect",
        ),
        (
            "forward-auth: 127.0.0.1:1, proxy: caddy }\n  - { forward-auth: 127.0.0.1:1, proxy: envoy",
            waf,
            "3:21: duplicate listener `127.0.0.1:1`, first in line 2",
        ),
    ] {
        let error = parse(listener, waf).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn local_api_is_the_same_while_its_authorities_are() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.conf"), "SecAction \"id:1,pass\"").unwrap();
    let certificates =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/certificates");
    let parse = |certificate: &str, host: &str| {
        std::fs::copy(certificates.join(certificate), folder.path().join("ca.pem")).unwrap();
        let text = format!(
            "listeners: [{{ appsec: '127.0.0.1:1' }}]\nwaf: {{ rules: [a.conf] }}\n\
             local_api: {{ url: 'https://{host}', ca: ca.pem }}\n"
        );
        Config::parse_serve(&text, &folder.path().join("w.yaml")).unwrap().local_api.unwrap()
    };
    let first = parse("ca.pem", "a.example");
    assert_eq!(first, parse("ca.pem", "a.example"));
    assert_ne!(first, parse("ca.pem", "b.example"));
    assert_ne!(first, parse("backend.pem", "a.example"));
}

#[test]
fn configurations_of_crowdsec_are_read_but_for_hooks() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let rule = |name: &str| {
        format!("name: {name}\nrules: [{{ zones: [URI], match: {{ type: equals, value: /a }} }}]\n")
    };
    for (file, name) in [("a", "org/vpatch-one"), ("b", "org/vpatch-two"), ("c", "org/other")] {
        write(&format!("appsec-rules/{file}.yaml"), &rule(name));
    }
    let parse = |config: &str, more: &str| {
        write("appsec-configs/mine.yaml", config);
        let text = format!(
            "listeners:\n  - {{ appsec: '127.0.0.1:0', keys: [a], appsec-configs: [appsec-configs/mine.yaml]{more} }}\n"
        );
        Config::parse_serve(&text, &folder.path().join("waf.yaml"))
    };
    let config = parse(
        "name: org/mine\ninband_rules: ['org/vpatch-*']\ndefault_remediation: captcha\nblocked_http_code: 418\n\
         user_blocked_http_code: 451\npassed_http_code: 202\nlog_level: info\noutofband_rules: [org/other]\n",
        "",
    )
    .unwrap();
    let waf = config.routes[0].waf.as_ref().unwrap();
    assert_eq!(waf.rules.set.rules().count(), 2);
    assert_eq!(waf.block.status, Some(418));
    let page = waf.block.page.as_deref().unwrap();
    assert_eq!(page, &br#"{"action":"captcha","http_status":451}"#[..]);
    let Action::Respond(passed) = &config.routes[0].action else { panic!("no response") };
    assert_eq!(
        (passed.status, &passed.body[..]),
        (202, &br#"{"action":"allow","http_status":200}"#[..])
    );
    let later = config.routes[0].verdicts.as_ref().unwrap().out_of_band.as_ref().unwrap();
    let tags = later.rules.set.rules().filter_map(|rule| rule.tags.first());
    let tags = tags.map(String::as_str).collect::<Vec<_>>();
    assert_eq!((tags, later.mode), (vec!["crowdsec-org/other"], EngineMode::DetectionOnly));
    let found = "inband_rules: [org/other]\n";
    for (config, more, expected) in [
        (
            &format!(
                "{found}on_match: [{{ filter: IsInBand, apply: [\"SetRemediation('captcha')\"] }}]\n"
            ),
            "",
            "`on_match` of `appsec-configs/mine.yaml` is in CrowdSec's expression language, which is not supported: \
             `IsInBand; SetRemediation('captcha')`; remove the hook",
        ),
        (&format!("{found}pre_evel: []\n"), "", "unknown field `pre_evel`"),
        (&format!("{found}blocked_http_code: 99\n"), "", "`99` or `403` is not a status"),
        (&format!("{found}default_remediation: 'a\"b'\n"), "", "is not a remediation"),
        (
            &format!("{found}default_remediation: allow\n"),
            "",
            "blocks nothing; write `waf: { mode: detection-only }`",
        ),
        (&"inband_rules: [org/none]\n".to_owned(), "", "no rule named `org/none`"),
        (&found.to_owned(), ", appsec-rules: elsewhere", "cannot read the folder of rules `"),
        (
            &found.to_owned(),
            ", waf: { rules: [a.conf] }",
            "`rules` has no effect with `appsec-configs`",
        ),
    ] {
        let error = parse(config, more).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let skips = format!("{found}inband_options: {{ disable_body_inspection: true }}\n");
    let config = parse(&skips, "").unwrap();
    assert!(!config.routes[0].waf.as_ref().unwrap().rules.set.settings().request_body_access);
    // A file with rules out of band alone blocks nothing.
    let config = parse(
        "outofband_rules: [org/other]\noutofband_options: { disable_body_inspection: true }\n",
        "",
    )
    .unwrap();
    let in_band = config.routes[0].waf.as_ref().unwrap();
    assert_eq!(in_band.mode, EngineMode::DetectionOnly);
    let later = config.routes[0].verdicts.as_ref().unwrap().out_of_band.as_ref().unwrap();
    assert!(!later.rules.set.settings().request_body_access);
    let config = parse("outofband_rules: [org/other]\n", ", waf: { mode: off }").unwrap();
    assert_eq!(config.routes[0].verdicts.as_ref().unwrap().out_of_band, None);
}
