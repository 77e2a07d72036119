//! A user's own nginx configuration, made to run in a trial: with the addresses and files of the trial in place of its own.
//!
//! The result is one file without `include`. Servers without `proxy_pass` are left out, and so is TLS in front of the backend,
//! as the origin speaks plain HTTP.

use anyhow::ensure;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{self, Path};
use tollgate_nginx_conf::{
    Argument, Block, ConfigError, Configuration, Directive, Directives, Place,
};
use tollgate_traffic::load_shape::CaseProtocol;

/// Directives of the configuration that the trial sets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filling<'a> {
    /// Folder of the trial.
    pub(super) dir: &'a Path,
    pub(super) listen: SocketAddr,
    pub(super) origins: &'a [SocketAddr],
    pub(super) protocol: CaseProtocol,
    /// File with the certificate and its key.
    pub(super) certificate: &'a Path,
    /// User of the workers, if nginx starts as root.
    pub(super) user: Option<&'a str>,
}

/// Directives of the whole server that the trial sets. Those outside of `http` would open ports of their own.
const REPLACED: [&str; 5] = ["daemon", "pid", "user", "stream", "mail"];
/// Directives for other protocols than HTTP to the backend.
const FOREIGN_PASSES: [&str; 5] =
    ["fastcgi_pass", "grpc_pass", "memcached_pass", "scgi_pass", "uwsgi_pass"];
/// TLS settings that cost time in a trial; others name files or need certificates of clients.
const KEPT_TLS: [&str; 9] = [
    "ssl_buffer_size",
    "ssl_ciphers",
    "ssl_conf_command",
    "ssl_early_data",
    "ssl_ecdh_curve",
    "ssl_prefer_server_ciphers",
    "ssl_protocols",
    "ssl_session_cache",
    "ssl_session_timeout",
];
/// Directives whose relative paths begin in the folder of the configuration.
const RELATIVE_FILES: [&str; 5] =
    ["auth_basic_user_file", "geoip_city", "geoip_country", "geoip_org", "xslt_stylesheet"];
/// Parameters of `listen` that belong to the socket, which may be set once for each address.
const SOCKET_PARAMETERS: [&str; 7] =
    ["backlog=", "deferred", "fastopen=", "rcvbuf=", "reuseport", "sndbuf=", "so_keepalive="];
/// Blocks of values, not of directives.
const DATA: [&str; 5] = ["charset_map", "geo", "map", "split_clients", "types"];
/// Folders that nginx creates even if it does not use them.
const TEMPORARY: [&str; 5] = [
    "client_body_temp_path",
    "fastcgi_temp_path",
    "proxy_temp_path",
    "scgi_temp_path",
    "uwsgi_temp_path",
];

/// Returns the configuration of a file, or of the output of `nginx -T`, for a trial.
pub(super) fn fill_in(path: &Path, filling: &Filling<'_>) -> anyhow::Result<String> {
    let Configuration { path: main, directives } =
        tollgate_nginx_conf::read(&path::absolute(path)?)?;
    directives.iter().try_for_each(require_utf8)?;
    let http = directives.iter().filter(|directive| directive.name == "http");
    let in_http = || http.clone().flat_map(Directive::directives);
    let upstreams = in_http().filter(|directive| directive.name == "upstream");
    let servers = || in_http().filter(|directive| is_measured(directive));
    let default = servers().find(|server| is_default(server)).or_else(|| servers().next());
    ensure!(
        default.is_some(),
        "cannot use {} as the configuration: no `server` in `http` has a `proxy_pass`",
        path.display()
    );
    let mut writer = Writer {
        filling,
        folder: main.parent().unwrap_or(Path::new("")),
        upstreams: upstreams.map(|upstream| upstream.argument(0)).collect(),
        default,
        files: Vec::new(),
    };
    let place = Place { file: "tollgate".into(), line: 1 };
    let pid = filling.dir.join("nginx.pid").display().to_string();
    let mut written =
        vec![Directive::new("daemon", ["off"], &place), Directive::new("pid", [pid], &place)];
    written.extend(filling.user.map(|user| Directive::new("user", [user], &place)));
    if !directives.iter().any(|directive| directive.name == "error_log") {
        written.push(Directive::new("error_log", ["stderr"], &place));
    }
    let kept = directives.iter().filter(|directive| !REPLACED.contains(&&*directive.name));
    for directive in kept {
        writer.write(directive, "", &mut written)?;
    }
    Ok(Directives(&written).to_string())
}

/// Refuses text that cannot be written as it was read.
fn require_utf8(directive: &Directive) -> Result<(), ConfigError> {
    if directive.title().contains('\u{FFFD}') {
        return Err(ConfigError::new(&directive.place, "not UTF-8"));
    }
    directive.directives().iter().try_for_each(require_utf8)
}

/// True for a server that has a `proxy_pass`.
fn is_measured(directive: &Directive) -> bool {
    fn forwards(directive: &Directive) -> bool {
        directive.name == "proxy_pass" || directive.directives().iter().any(forwards)
    }
    directive.name == "server" && forwards(directive)
}

fn listens(server: &Directive) -> impl Iterator<Item = &Argument> {
    let listens = server.directives().iter().filter(|directive| directive.name == "listen");
    listens.flat_map(|listen| listen.arguments.iter().skip(1))
}

/// True for a server that `listen` makes the default one of an address.
fn is_default(server: &Directive) -> bool {
    listens(server).any(|parameter| matches!(&*parameter.text, "default_server" | "default"))
}

struct Writer<'a> {
    filling: &'a Filling<'a>,
    /// Folder of the configuration.
    folder: &'a Path,
    /// Names of the upstreams.
    upstreams: BTreeSet<&'a str>,
    /// The server for requests to unknown hosts.
    default: Option<&'a Directive>,
    /// Logs and folders of the configuration: a file of the trial for each.
    files: Vec<String>,
}

impl Writer<'_> {
    /// Appends what a directive is in the trial. Directives outside of blocks are in the block "".
    fn write(
        &mut self,
        directive: &Directive,
        block: &str,
        written: &mut Vec<Directive>,
    ) -> Result<(), ConfigError> {
        let fault = |message: String| ConfigError::new(&directive.place, message);
        let name = &*directive.name;
        let mut new = directive.clone();
        match name {
            "server" if block == "upstream" => {
                // All servers of an upstream become the origins.
                if written.iter().all(|one| one.name != "server") {
                    let server = |origin: &SocketAddr| {
                        Directive::new("server", [origin.to_string()], &directive.place)
                    };
                    written.extend(self.filling.origins.iter().map(server));
                }
                return Ok(());
            }
            "server" if block == "http" && !is_measured(directive) => return Ok(()),
            "listen" if block == "server" => return Ok(()),
            "http2" | "http3" => return Ok(()),
            _ if name.starts_with("proxy_ssl_") => return Ok(()),
            _ if name.starts_with("ssl_") && !KEPT_TLS.contains(&name) => return Ok(()),
            "proxy_pass" => {
                let address = self.proxied(directive.argument(0)).map_err(fault)?;
                set_first(&mut new, address);
            }
            _ if FOREIGN_PASSES.contains(&name) => {
                return Err(fault(format!(
                    "`{name}` cannot lead to the origin of a run, which speaks HTTP; remove the location in a copy of the file"
                )));
            }
            "error_log" => set_first(&mut new, "stderr".to_owned()),
            "access_log" if directive.argument(0) == "off" => {}
            "access_log" => self.redirect(&mut new, "access.log"),
            _ if name.ends_with("_temp_path") => self.redirect(&mut new, name),
            _ if name.ends_with("_cache_path") => self.redirect(&mut new, name),
            _ if RELATIVE_FILES.contains(&name) && directive.argument(0) != "off" => {
                let path = self.folder.join(directive.argument(0));
                set_first(&mut new, path.display().to_string());
            }
            _ => {}
        }
        if let Block::Directives(inner) = &directive.block
            && !DATA.contains(&name)
        {
            let mut block = match name {
                "http" => self.folders(directive),
                "server" => self.listen(directive),
                _ => Vec::new(),
            };
            for directive in inner {
                self.write(directive, name, &mut block)?;
            }
            new.block = Block::Directives(block);
        }
        written.push(new);
        Ok(())
    }

    /// Returns the folders that `http` lacks.
    fn folders(&self, http: &Directive) -> Vec<Directive> {
        let lacks = |name: &&str| http.directives().iter().all(|directive| directive.name != *name);
        let folder = |name: &str| {
            let path = self.filling.dir.join(name).display().to_string();
            Directive::new(name, [path], &http.place)
        };
        TEMPORARY.iter().filter(|name| lacks(name)).map(|name| folder(name)).collect()
    }

    /// Returns the listener of a server.
    fn listen(&self, server: &Directive) -> Vec<Directive> {
        let mut arguments = vec![self.filling.listen.to_string()];
        if self.default.is_some_and(|default| std::ptr::eq(default, server)) {
            arguments.push("default_server".to_owned());
            let mut names = BTreeSet::new();
            for parameter in listens(server) {
                let name = parameter.text.split_inclusive('=').next().unwrap_or_default();
                if SOCKET_PARAMETERS.contains(&name) && names.insert(name) {
                    arguments.push(parameter.text.clone());
                }
            }
        }
        let (is_tls, is_http2) = match self.filling.protocol {
            CaseProtocol::H1 => (false, false),
            CaseProtocol::H2 => (false, true),
            CaseProtocol::Https => (true, false),
            CaseProtocol::HttpsH2 => (true, true),
        };
        arguments.extend(is_tls.then(|| "ssl".to_owned()));
        arguments.extend(is_http2.then(|| "http2".to_owned()));
        let certificate = self.filling.certificate.display().to_string();
        let files = ["ssl_certificate", "ssl_certificate_key"];
        let files = files.into_iter().filter(|_| is_tls);
        let files = files.map(|name| Directive::new(name, [&*certificate], &server.place));
        let listen = Directive::new("listen", arguments, &server.place);
        std::iter::once(listen).chain(files).collect()
    }

    /// Returns the argument of a `proxy_pass` that leads to the origin.
    fn proxied(&self, url: &str) -> Result<String, String> {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let unclear = || {
            format!(
                "cannot find the host in `proxy_pass {url}`; write `proxy_pass http://{{{{ origin.address }}}}`, and the other \
                 lines of docs/systems.md, in a copy of the file"
            )
        };
        let (host, uri) = match rest {
            // A variable alone has the whole URL, and the request keeps its own path.
            None if url.starts_with('$') && !url.contains('/') => (url, ""),
            None => return Err(unclear()),
            Some(rest) => match rest.strip_prefix("unix:") {
                Some(path) => ("", path.split_once(':').map_or("", |(_, uri)| uri)),
                None => {
                    let end = rest.find(['/', '?']).or_else(|| rest.find("$request_uri"));
                    rest.split_at(end.unwrap_or(rest.len()))
                }
            },
        };
        // With a variable anywhere, nginx sends `uri` as it is.
        if host.contains('$') && !(uri.is_empty() || uri.contains('$')) {
            return Err(unclear());
        }
        let origin =
            || self.filling.origins.first().map_or_else(String::new, SocketAddr::to_string);
        let host = if self.upstreams.contains(host) { host.to_owned() } else { origin() };
        Ok(format!("http://{host}{uri}"))
    }

    /// Moves a log or folder of a directive to the folder of the trial.
    fn redirect(&mut self, directive: &mut Directive, name: &str) {
        let old = directive.argument(0).to_owned();
        let known = self.files.iter().position(|file| *file == old);
        let number = known.unwrap_or(self.files.len());
        if known.is_none() {
            self.files.push(old);
        }
        let path = self.filling.dir.join(format!("{name}-{}", number + 1));
        set_first(directive, path.display().to_string());
    }
}

fn set_first(directive: &mut Directive, text: String) {
    if let Some(first) = directive.arguments.first_mut() {
        first.text = text;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what a configuration becomes, without comments and indentation, or the error without the folder.
    fn filled(text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, text).map_err(|error| error.to_string())?;
        let filling = Filling {
            dir: Path::new("/dir"),
            listen: SocketAddr::from(([127, 0, 0, 1], 80)),
            origins: &[
                SocketAddr::from(([127, 0, 0, 1], 81)),
                SocketAddr::from(([127, 0, 0, 1], 82)),
            ],
            protocol: CaseProtocol::Https,
            certificate: Path::new("/dir/certificate.pem"),
            user: Some("me"),
        };
        let folder = format!("{}/", folder.path().display());
        let text = fill_in(&path, &filling).map_err(|error| error.to_string());
        let text = text.map_err(|error| error.replace(&folder, ""))?;
        let lines = text.lines().map(|line| line.split("  # ").next().unwrap_or(line).trim());
        let lines = lines.filter(|line| !line.contains("_temp_path"));
        Ok(lines.collect::<Vec<_>>().join(" ").replace(&folder, ""))
    }

    const START: &str = "daemon off; pid /dir/nginx.pid; user me; error_log stderr;";

    #[test]
    fn servers_listen_where_the_trial_does() {
        let server = "proxy_pass http://a; ssl_certificate b; ssl_session_cache c; http2 on;";
        let text = format!(
            "user you; daemon on; http {{ \
             server {{ listen 80; return 301 b; }} \
             server {{ listen 1 ssl backlog=9; {server} }} \
             server {{ listen 2 reuseport default_server backlog=7; listen 3 backlog=8; {server} }} }}"
        );
        let tls = "ssl_certificate /dir/certificate.pem; ssl_certificate_key /dir/certificate.pem; \
                   proxy_pass http://127.0.0.1:81; ssl_session_cache c;";
        let expected = format!(
            "{START} http {{ server {{ listen 127.0.0.1:80 ssl; {tls} }} \
             server {{ listen 127.0.0.1:80 default_server reuseport backlog=7 ssl; {tls} }} }}"
        );
        assert_eq!(filled(&text), Ok(expected));
    }

    #[test]
    fn proxies_lead_to_the_origin() {
        for (url, expected) in [
            ("http://app", "http://app"),
            ("https://app/path$1", "http://app/path$1"),
            ("http://10.0.0.1:8080", "http://127.0.0.1:81"),
            ("http://app.example/", "http://127.0.0.1:81/"),
            ("http://unix:/run/app.sock", "http://127.0.0.1:81"),
            ("http://unix:/run/app.sock:/path", "http://127.0.0.1:81/path"),
            ("$backend", "http://127.0.0.1:81"),
            ("http://$backend", "http://127.0.0.1:81"),
            ("http://$host$request_uri", "http://127.0.0.1:81$request_uri"),
            ("http://$host/path", ""),
            ("$backend/path", ""),
        ] {
            let text = format!(
                "http {{ upstream app {{ server a; keepalive 2; server b; }} map $a $b {{ server 1; }} \
                 server {{ location / {{ proxy_pass {url}; }} }} }}"
            );
            let filled = filled(&text);
            if expected.is_empty() {
                let error = format!("nginx.conf:1: cannot find the host in `proxy_pass {url}`;");
                assert!(filled.is_err_and(|found| found.starts_with(&error)), "{url}");
                continue;
            }
            let upstream =
                "upstream app { server 127.0.0.1:81; server 127.0.0.1:82; keepalive 2; }";
            let filled = filled.unwrap_or_else(|error| panic!("{error}"));
            assert!(filled.contains(upstream) && filled.contains("{ server 1; }"), "{filled}");
            assert!(filled.ends_with(&format!("{{ proxy_pass {expected}; }} }} }}")), "{filled}");
        }
    }

    #[test]
    fn files_are_those_of_the_trial() {
        let text = "error_log logs/a notice; http { access_log off; auth_basic_user_file users;\n\
             proxy_cache_path cache levels=1:2;\nserver { access_log a json; error_log b; proxy_pass http://c;\n\
             location / { access_log a; access_log b; } } }";
        let expected = "daemon off; pid /dir/nginx.pid; user me; error_log stderr notice; \
             http { access_log off; auth_basic_user_file users; proxy_cache_path /dir/proxy_cache_path-1 levels=1:2; \
             server { listen 127.0.0.1:80 default_server ssl; ssl_certificate /dir/certificate.pem; \
             ssl_certificate_key /dir/certificate.pem; access_log /dir/access.log-2 json; error_log stderr; \
             proxy_pass http://127.0.0.1:81; \
             location / { access_log /dir/access.log-2; access_log /dir/access.log-3; } } }";
        assert_eq!(filled(text), Ok(expected.to_owned()));
    }

    #[test]
    fn faults_name_file_and_line() {
        for (text, expected) in [
            ("http {\nserver { return 200; } }", "no `server` in `http` has a `proxy_pass`"),
            (
                "http { server { proxy_pass http://a;\nuwsgi_pass b; } }",
                "nginx.conf:2: `uwsgi_pass` cannot lead",
            ),
            (
                "http { server { proxy_pass http://a;\n\nadd_header a \u{FFFD}; } }",
                "nginx.conf:3: not UTF-8",
            ),
            ("http {\ninclude none; }", "nginx.conf:2: cannot read"),
        ] {
            let error = filled(text).expect_err(text);
            assert!(error.contains(expected), "{error}");
        }
    }
}
