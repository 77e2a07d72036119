use super::*;
use std::net::{IpAddr, Ipv4Addr};
use tollgate_experiment::catalog::Kind;
use tollgate_experiment::error_chain;
use tollgate_experiment::experiment::{Adjustments, Experiment};
use tollgate_experiment::options::{self, Options};

fn programs() -> Installed {
    let programs = BTreeMap::from([("nginx".to_owned(), PathBuf::from("/usr/sbin/nginx"))]);
    Installed { programs, ..Installed::default() }
}

/// Everything that a recipe may need, as if it were installed.
fn all_installed(recipe: &tollgate_experiment::recipe::Recipe, dir: &Path) -> Installed {
    let here = |name: String| {
        let path = dir.join("installed").join(&name);
        fs::create_dir_all(&path).unwrap();
        (name, path)
    };
    let needs = || recipe.file.need.iter();
    Installed {
        programs: needs().filter_map(|need| need.program.clone()).map(here).collect(),
        builds: needs().filter_map(|need| need.build.clone()).map(here).collect(),
        found: needs().filter_map(|need| need.name.clone()).map(here).collect(),
        ..Installed::default()
    }
}

fn subject(name: &str) -> Subject {
    let experiment =
        Experiment::load(&Catalog::new(vec![]), "first-look", &Adjustments::default()).unwrap();
    experiment.subjects.into_iter().find(|s| s.name == name).unwrap()
}

const ORIGINS: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 18_081),
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 18_082),
];

/// The place of a proxy.
fn place<'a>(
    dir: &'a Path,
    ports: &'a BTreeMap<String, SocketAddr>,
    installed: &'a Installed,
) -> Place<'a> {
    Place {
        dir,
        listen: "127.0.0.1:18080".parse().unwrap(),
        origins: &ORIGINS[..1],
        connections: 50,
        ports,
        installed,
    }
}

#[test]
fn configuration_has_address_and_origin() {
    let dir = tempfile::tempdir().unwrap();
    let (installed, ports) = (programs(), BTreeMap::new());
    let place = place(dir.path(), &ports, &installed);
    let rendered = render(&Catalog::new(vec![]), &subject("nginx"), &place).unwrap();
    assert_eq!(rendered.processes[0].command[0], "/usr/sbin/nginx");
    let config = fs::read_to_string(dir.path().join("nginx.conf")).unwrap();
    assert!(config.contains("listen 127.0.0.1:18080 "), "{config}");
    assert!(config.contains("server 127.0.0.1:18081;"), "{config}");
    assert!(config.contains("worker_processes 1;"), "{config}");
    assert!(!config.contains("{%"), "{config}");
}

#[test]
fn load_balancer_configuration_has_every_origin() {
    let catalog = Catalog::new(vec![]);
    let experiment = Experiment::load(&catalog, "vitrix", &Adjustments::default()).unwrap();
    for (system, file, lines) in [
        ("nginx", "nginx.conf", ["server 127.0.0.1:18081;\n", "server 127.0.0.1:18082;\n"]),
        (
            "haproxy",
            "haproxy.cfg",
            ["server origin1 127.0.0.1:18081 pool", "server origin2 127.0.0.1:18082 pool"],
        ),
        (
            "tollgate-gateway",
            "gateway.yaml",
            ["- address: 127.0.0.1:18081\n", "- address: 127.0.0.1:18082\n"],
        ),
    ] {
        let subject = experiment.subjects.iter().find(|s| s.recipe.name == system).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (installed, ports) = (all_installed(&subject.recipe, dir.path()), BTreeMap::new());
        for origins in [1, 2] {
            let place = place(dir.path(), &ports, &installed);
            render(&catalog, subject, &Place { origins: &ORIGINS[..origins], ..place }).unwrap();
            let config = fs::read_to_string(dir.path().join(file)).unwrap();
            let found = lines.map(|line| config.matches(line).count());
            assert_eq!(found, [1, origins - 1], "{system}, {origins}: {config}");
        }
    }
}

#[test]
fn system_without_origin_gets_its_files_unchanged() {
    let catalog = Catalog::new(vec![]);
    let experiment = Experiment::load(&catalog, "site", &Adjustments::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (installed, ports) = (programs(), BTreeMap::new());
    let place = Place { origins: &[], connections: 128, ..place(dir.path(), &ports, &installed) };
    render(&catalog, &experiment.subjects[0], &place).unwrap();
    let config = fs::read_to_string(dir.path().join("nginx.conf")).unwrap();
    assert!(config.contains("worker_connections 768;"), "{config}");
    assert!(config.contains(" backlog=4096;") && !config.contains("upstream"), "{config}");
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert_eq!(page, include_str!("../../../../../site/page.html"));
    assert!(page.contains("{{host}}"));
    // A proxy needs an origin.
    let error = render(&catalog, &subject("nginx"), &place).unwrap_err();
    assert!(error.to_string().contains("configuration template `nginx.conf`"), "{error}");
}

#[test]
fn every_built_in_recipe_renders_with_defaults() {
    let catalog = Catalog::new(vec![]);
    for name in catalog.names(Kind::System) {
        let recipe = catalog.recipe(&name).unwrap();
        let options = options::choose(&name, &recipe.file.option, &Options::new()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let installed = all_installed(&recipe, dir.path());
        let ports = recipe.file.ports.iter();
        let ports = ports.map(|name| (name.clone(), "127.0.0.1:18082".parse().unwrap()));
        let ports = ports.collect();
        let place = place(dir.path(), &ports, &installed);
        let origins = if recipe.file.balances { 2 } else { usize::from(recipe.file.origin) };
        let place = Place { origins: &ORIGINS[..origins], ..place };
        let subject = Subject { name, recipe, options, ..subject("nginx") };
        if let Err(error) = render(&catalog, &subject, &place) {
            panic!("{}: {}", subject.name, error_chain(&error));
        }
    }
}

#[test]
fn naxsi_is_loaded_from_the_found_path() {
    let catalog = Catalog::new(vec![]);
    let recipe = catalog.recipe("nginx-naxsi").unwrap();
    let chosen = Options::from([("rules".to_owned(), OptionValue::Text("core".to_owned()))]);
    let options = options::choose("nginx-naxsi", &recipe.file.option, &chosen).unwrap();
    let naxsi = Subject { recipe, options, ..subject("nginx") };
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("naxsi_core.rules");
    fs::write(&rules, "abc").unwrap();
    let found = [("module", Path::new("/opt/naxsi.so")), ("core_rules", rules.as_path())];
    let found = found.map(|(name, path)| (name.to_owned(), path.to_owned()));
    let installed = Installed { found: BTreeMap::from(found), ..programs() };
    let ports = BTreeMap::new();
    let rendered = render(&catalog, &naxsi, &place(dir.path(), &ports, &installed)).unwrap();
    // FIPS 180-4, appendix B.1.
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(rendered.referenced[&rules], abc);
    let config = fs::read_to_string(dir.path().join("nginx.conf")).unwrap();
    for line in [
        "load_module /opt/naxsi.so;".to_owned(),
        format!("include {};", rules.display()),
        "CheckRule \"$SQL >= 8\" BLOCK;".to_owned(),
    ] {
        assert!(config.contains(&line), "{line} in {config}");
    }
}

#[test]
fn options_tune_nginx() {
    let mut tuned = subject("full");
    for (name, value) in
        [("worker_connections", 1000), ("rlimit_nofile", 5000), ("backlog", 511), ("workers", 3)]
    {
        tuned.options.insert(name.to_owned(), OptionValue::Integer(value));
    }
    let dir = tempfile::tempdir().unwrap();
    let (installed, ports) = (programs(), BTreeMap::new());
    let place = place(dir.path(), &ports, &installed);
    // Its rules may not be installed; they are rendered after this file.
    if let Err(error) = render(&Catalog::new(vec![]), &tuned, &place) {
        assert!(error.to_string().contains("modsecurity-full.conf"), "{error}");
    }
    let config = fs::read_to_string(dir.path().join("nginx.conf")).unwrap();
    for line in [
        "worker_connections 1000;",
        "worker_rlimit_nofile 5000;",
        "backlog=511;",
        "worker_processes 3;",
    ] {
        assert!(config.contains(line), "{line} in {config}");
    }
}

#[test]
fn conditions_use_the_options() {
    assert!(holds(&subject("full"), "engine == 'on' and rules == 'crs'").unwrap());
    assert!(!holds(&subject("light"), "rules == 'crs'").unwrap());
    let error = holds(&subject("light"), "rulez == 'crs'").unwrap_err();
    assert!(error.to_string().contains("rulez"), "{error}");
}
