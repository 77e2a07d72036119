use super::*;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use tollgate_experiment::adjust::Adjustments;
use tollgate_experiment::catalog::Kind;
use tollgate_experiment::experiment::Experiment;
use tollgate_experiment::options;
use tollgate_records::subject::Options;

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
) -> RenderPlace<'a> {
    RenderPlace {
        dir,
        listen: "127.0.0.1:18080".parse().unwrap(),
        origins: &ORIGINS[..1],
        concurrency: Concurrency { connections: 50, requests: 500 },
        protocol: CaseProtocol::H1,
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
            render(&catalog, subject, &RenderPlace { origins: &ORIGINS[..origins], ..place })
                .unwrap();
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
    let place = RenderPlace {
        origins: &[],
        concurrency: Concurrency { connections: 128, requests: 128 },
        ..place(dir.path(), &ports, &installed)
    };
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
        let place = RenderPlace { origins: &ORIGINS[..origins], ..place };
        let subject = Subject { name, recipe, options, ..subject("nginx") };
        if let Err(error) = render(&catalog, &subject, &place) {
            panic!("{}: {error:#}", subject.name);
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
    // Without rules, naxsi would block every request.
    let none = Options::from([("rules".to_owned(), OptionValue::Text("none".to_owned()))]);
    let without = Subject::new("none", naxsi.recipe, &none).unwrap();
    render(&catalog, &without, &place(dir.path(), &ports, &installed)).unwrap();
    let config = fs::read_to_string(dir.path().join("nginx.conf")).unwrap();
    assert!(config.contains("load_module") && !config.contains("SecRulesEnabled"), "{config}");
}

/// On nginx, a user's file; the same variables as in templates, but no blocks.
#[test]
fn own_configuration_replaces_the_template() {
    let catalog = Catalog::new(vec![]);
    let dir = tempfile::tempdir().unwrap();
    for (system, template, text) in [
        (
            "caddy",
            "Caddyfile",
            "{\n admin off\n}\nhttp://:{{ listen.port }} {\n bind {{ listen.host }}\n reverse_proxy {{ \
             origin.address }}\n log {% if %}\n}\n",
        ),
        (
            "haproxy",
            "haproxy.cfg",
            "bind {{listen.address}}\nserver a {{ origin.address }} maxconn {{ threads }}\n",
        ),
    ] {
        let path = dir.path().join("mine");
        fs::write(&path, text).unwrap();
        let recipe = catalog.recipe(system).unwrap();
        let config = OptionValue::Text(path.display().to_string());
        let mine = Subject::new("mine", recipe, &Options::from([("config".to_owned(), config)]));
        let mine = mine.unwrap();
        let (installed, ports) = (all_installed(&mine.recipe, dir.path()), BTreeMap::new());
        let render = || render(&catalog, &mine, &place(dir.path(), &ports, &installed));
        render().unwrap();
        let written = fs::read_to_string(dir.path().join(template)).unwrap();
        assert!(written.contains("18080") && written.contains("127.0.0.1:18081"), "{written}");
        fs::write(&path, text.replace("origin", "orign")).unwrap();
        let error = format!("{:#}", render().unwrap_err());
        assert!(error.contains("mine") && error.contains("undefined"), "{error}");
        fs::write(&path, text.replace("{{ origin.address }}", "127.0.0.1:180811")).unwrap();
        let error = render().unwrap_err().to_string();
        assert!(error.contains("{{ origin.address }}    in place of line "), "{error}");
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

#[test]
fn error_names_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        fs::create_dir_all(folder.path().join("systems/odd")).unwrap();
        fs::write(folder.path().join("systems/odd").join(name), text).unwrap();
    };
    let dir = tempfile::tempdir().unwrap();
    let (installed, ports) = (programs(), BTreeMap::new());
    let error = |config: &str, command: &str| {
        write("odd.conf", config);
        let process = format!("[[process]]\nname = 'odd'\ncommand = ['odd', '{command}']");
        write("system.toml", &format!("title = 'odd'\ntemplates = ['odd.conf']\n{process}"));
        let catalog = Catalog::new(vec![folder.path().to_owned()]);
        let recipe = catalog.recipe("odd").unwrap();
        let subject = Subject { recipe, ..subject("light") };
        let place = place(dir.path(), &ports, &installed);
        format!("{:#}", render(&catalog, &subject, &place).unwrap_err())
    };
    assert_eq!(
        error("# first\nlisten {{ listn.port }};", "-f"),
        "cannot render configuration template `odd.conf` of system `odd`: undefined value: `listn` is undefined (in \
         odd/odd.conf:2)"
    );
    let of_command = error("listen {{ listen.port }};", "{{ listen.prt }}");
    let start = "cannot render `command` of process `odd` in system.toml of system `odd`: undefined value: \
                 `listen.prt` is undefined";
    assert!(of_command.starts_with(start), "{of_command}");
}

#[test]
fn manual_lists_the_names_in_templates() {
    let manual = include_str!("../../../../../docs/systems.md");
    let section = manual.split("## Names in templates").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<String> =
        rows.map(|row| row.split('`').next().unwrap().to_owned()).collect();

    let (installed, ports) = (programs(), BTreeMap::new());
    let subject = subject("nginx");
    let known = variables(&subject, &place(Path::new("/"), &ports, &installed));
    let names: BTreeSet<String> = known.try_iter().unwrap().map(|name| name.to_string()).collect();
    let options: BTreeSet<String> = subject.options.keys().cloned().collect();
    assert_eq!(listed, names.difference(&options).cloned().collect());
}
