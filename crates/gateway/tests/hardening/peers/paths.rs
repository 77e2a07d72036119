//! Which route a path takes, beside the location that nginx has for it.

use std::io::Write;
use std::net::TcpStream;

use tollgate_gateway::config::{Address, Backend as Listed, Pool, PoolId, Route};

use crate::backend::{Backend, read_head};
use crate::caller::{Answer, Caller};
use crate::front::Peer;
use crate::served::Served;

/// The same that the gateway's backends say.
const LOCATIONS: &str = "location / { return 200 open; }\n\
    location = /admin { return 200 admin; }\n\
    location /admin/ { return 200 admin; }\n";

/// Spellings that everybody reads in one way.
const PATHS: [&str; 22] = [
    "/",
    "/admin",
    "/admin/x",
    "/admin?x",
    "/administrator",
    "/Admin",
    "/%61dmin",
    "/%61%64%6D%69%6e/x",
    "/%41dmin",
    "/%2561dmin",
    "//admin",
    "/admin//x//",
    "/./admin",
    "/x/../admin",
    "/x/%2e%2e/admin",
    "/x/.%2E/./admin/y",
    "/admin/..",
    "/admin/../x",
    "/admin%20",
    "/admin%3Fx",
    "/x?/../admin",
    "/x/.../admin",
];

/// Spellings that some take for those of `/admin`, and some do not.
const AMBIGUOUS: [&str; 6] =
    ["/x/..%2fadmin", "/%2Fadmin", "/admin%2fx", "/admin;x", "/x/..;/admin", "/x//../admin"];

fn backend(says: &'static str) -> Backend {
    Backend::start(move |mut stream: TcpStream| {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{says}", says.len());
        while read_head(&mut stream).is_some() {
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

fn ask(address: &Address, path: &str) -> Answer {
    Caller::connect(address).unwrap().get(path).unwrap()
}

#[test]
fn a_path_has_the_route_that_nginx_has_for_it_or_none() {
    let (open, admin) = (backend("open"), backend("admin"));
    let gateway = Served::with(open.address, |config| {
        config.pools.push(Pool::new("admin", vec![Listed::new(Address::Tcp(admin.address))]));
        config.routes.push(Route { path_prefix: "/admin".to_owned(), ..Route::all_to(PoolId(1)) });
    });
    let nginx = Peer::nginx_with(LOCATIONS);
    for path in PATHS {
        let (ours, theirs) = (ask(gateway.address(), path), ask(&nginx.address, path));
        assert_eq!((ours.status, ours.text()), (theirs.status, theirs.text()), "{path}");
    }
    for path in AMBIGUOUS {
        assert_eq!(ask(gateway.address(), path).status, 400, "{path}");
    }
}
