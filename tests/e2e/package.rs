//! Packages of the tested binary. The Debian package, made by scripts/deb as in `make deb`: installed, used, upgraded,
//! removed. The container image, made by scripts/image as in `make image`: verified and unpacked.

use crate::documents::broken_links;
use crate::support::{Workspace, show, stderr, stdout};
use assert_cmd::cargo::cargo_bin;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name))
}

/// Makes the package. Returns its path.
fn package(workspace: &Workspace) -> PathBuf {
    let mut command = script("deb");
    command.arg(cargo_bin!("tollgate")).arg(workspace.path(""));
    // A debug build is large, and xz slow.
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    PathBuf::from(succeed(&mut command).trim_end())
}

fn succeed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}", show(&output));
    stdout(&output)
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; run `make test`"))
}

/// Runs dpkg on an empty system in `root`.
fn dpkg(root: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("fakeroot");
    command.args(["dpkg", "--force-depends", "--force-script-chrootless", "--force-not-root"]);
    // User and system configuration of dpkg may exclude manual pages.
    command.arg(format!("--root={}", root.display())).args(["--path-include=*"]).args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    succeed(&mut command)
}

#[test]
fn debian_package_installs_upgrades_and_purges() {
    let workspace = Workspace::concurrent();
    let package = package(&workspace);
    let package = package.to_str().unwrap();
    let root = workspace.path("root");
    workspace.write("root/var/lib/dpkg/status", "");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(folder)).unwrap();
    }
    dpkg(&root, &["--install", package]);
    let binary = root.join("usr/bin/tollgate");
    let version = stdout(&workspace.run(&["--version"]));
    assert_eq!(succeed(Command::new(&binary).arg("--version")), version);

    // The unit names files of the package, and the installed configuration is valid.
    let unit = workspace.read("root/usr/lib/systemd/system/tollgate-gateway.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("ExecStart");
    let paths: Vec<_> = start.split(' ').filter(|word| word.starts_with('/')).collect();
    assert_eq!(paths, ["/usr/bin/tollgate", "/etc/tollgate/gateway.yaml"]);
    let config = root.join("etc/tollgate/gateway.yaml");
    succeed(Command::new(&binary).args(["gateway", "--check", "--config"]).arg(&config));

    // Its documents are complete, and editors find the schema of the configuration.
    let documents = fs::canonicalize(root.join("usr/share/doc/tollgate")).unwrap();
    let folders = ["", "docs", "docs/tutorials", "records"];
    assert_eq!(broken_links(&documents, &folders), [""; 0]);
    let text = workspace.read("root/etc/tollgate/gateway.yaml");
    let schema = text.lines().find_map(|line| line.split_once("$schema=/")).expect("a schema").1;
    assert!(root.join(schema).is_file(), "{schema}");

    // An upgrade keeps the administrator's configuration.
    workspace.change("root/etc/tollgate/gateway.yaml", "threads: 1", "threads: 2");
    dpkg(&root, &["--install", package]);
    assert!(workspace.read("root/etc/tollgate/gateway.yaml").contains("threads: 2"));
    dpkg(&root, &["--remove", "tollgate"]);
    assert!(!binary.exists() && config.exists());
    dpkg(&root, &["--purge", "tollgate"]);
    assert!(!config.exists());
}

#[test]
fn image_is_a_layout_of_oci_whose_layer_has_the_program() {
    let workspace = Workspace::concurrent();
    let mut command = script("image");
    command.arg(cargo_bin!("tollgate")).arg(workspace.path(""));
    let refused = output(&mut command);
    assert!(stderr(&refused).contains("needs shared libraries"), "{}", show(&refused));
    command.env("DYNAMIC", "yes");
    let image = succeed(&mut command).trim_end().to_owned();
    let first = digest(Path::new(&image));
    succeed(&mut command);
    assert_eq!(digest(Path::new(&image)), first);
    fs::create_dir_all(workspace.path("image/rootfs")).unwrap();
    succeed(Command::new("tar").args(["-xf", &image, "-C"]).arg(workspace.path("image")));

    let layout: Value = serde_json::from_str(&workspace.read("image/oci-layout")).unwrap();
    assert_eq!(layout, json!({ "imageLayoutVersion": "1.0.0" }));
    let index: Value = serde_json::from_str(&workspace.read("image/index.json")).unwrap();
    assert_eq!(index["manifests"].as_array().map(Vec::len), Some(1));
    let manifest = blob(&workspace, &index["manifests"][0], "manifest.v1+json");
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    assert_eq!(manifest["schemaVersion"], 2);
    let config = blob(&workspace, &manifest["config"], "config.v1+json");
    let config: Value = serde_json::from_slice(&fs::read(config).unwrap()).unwrap();
    let architecture = succeed(Command::new("dpkg").arg("--print-architecture"));
    assert_eq!(config["architecture"], architecture.trim_end());
    assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/tollgate"]));
    assert_eq!(config["config"]["User"], "65532:65532");

    // The configuration names the layer as it is unpacked, the manifest as it is sent.
    assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1));
    let layer = blob(&workspace, &manifest["layers"][0], "layer.v1.tar+gzip");
    let tar = workspace.path("layer.tar");
    let unpacked = output(Command::new("gzip").arg("-dc").stdin(fs::File::open(&layer).unwrap()));
    fs::write(&tar, unpacked.stdout).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"], json!([digest(&tar)]));
    let rootfs = workspace.path("image/rootfs");
    succeed(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&rootfs));
    let version = stdout(&workspace.run(&["--version"]));
    assert_eq!(succeed(Command::new(rootfs.join("usr/bin/tollgate")).arg("--version")), version);
}

/// The file that a descriptor names, of the expected type, size and digest.
fn blob(workspace: &Workspace, descriptor: &Value, kind: &str) -> PathBuf {
    let media_type = descriptor["mediaType"].as_str().expect("a media type");
    assert_eq!(media_type, format!("application/vnd.oci.image.{kind}"));
    let name = descriptor["digest"].as_str().expect("a digest");
    let path = workspace.path("image/blobs").join(name.replace(':', "/"));
    assert_eq!(digest(&path), name);
    assert_eq!(descriptor["size"], fs::metadata(&path).expect("a blob").len());
    path
}

fn digest(path: &Path) -> String {
    let sum = succeed(Command::new("sha256sum").arg(path));
    format!("sha256:{}", sum.split(' ').next().expect("a sum"))
}

#[test]
fn manual_pages_render_without_warnings() {
    let workspace = Workspace::concurrent();
    fs::create_dir(workspace.path("man")).unwrap();
    let output_of_man = workspace.run(&["man", "man"]);
    assert!(output_of_man.status.success(), "{}", show(&output_of_man));
    let mut names = Vec::new();
    for entry in fs::read_dir(workspace.path("man")).unwrap() {
        let path = entry.unwrap().path();
        names.push(path.file_stem().unwrap().to_str().unwrap().replace('-', " "));
        let mut man = Command::new("man");
        man.args(["--warnings", "--encoding=utf8", "--local-file"]).arg(&path);
        man.env("LC_ALL", "C.UTF-8").env("MANROFFOPT", "-ww").env("MANWIDTH", "80");
        let page = output(&mut man);
        assert!(page.status.success() && page.stderr.is_empty(), "{path:?}: {}", show(&page));
        let page = stdout(&page);
        assert!(page.contains("SYNOPSIS"), "{path:?}: {page}");
        let wide = page.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{path:?}");
    }
    names.sort();
    // One for each line of a help text that names a subcommand.
    let mut expected = vec!["tollgate".to_owned()];
    let mut next = 0;
    while let Some(name) = expected.get(next).cloned() {
        let mut arguments: Vec<_> = name.split(' ').skip(1).collect();
        arguments.push("--help");
        let help = stdout(&workspace.run(&arguments));
        let commands = help.split("\nCommands:\n").nth(1).unwrap_or_default();
        let lines = commands.lines().take_while(|line| !line.is_empty());
        let lines = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let subcommands = lines.filter_map(|line| line.split_whitespace().next());
        expected.extend(
            subcommands.filter(|word| *word != "help").map(|word| format!("{name} {word}")),
        );
        next += 1;
    }
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn bash_completes_subcommands_options_and_names() {
    let workspace = Workspace::concurrent();
    workspace.write("tollgate.bash", &stdout(&workspace.run(&["completions", "bash"])));
    for (words, expected) in [
        (&["tollgate", "ru"][..], "run\n"),
        (&["tollgate", "systems", "cl"], "clean\n"),
        (&["tollgate", "run", "--thresh"], "--threshold\n"),
        (&["tollgate", "completions", "z"], "zsh\n"),
        (&["tollgate", "run", "modsec"], "modsecurity\n"),
        (&["tollgate", "run", "nginx", "haproxy-"], "haproxy-spoe\n"),
        (&["tollgate", "systems", "check", "apache-"], "apache-modsecurity\n"),
        (&["tollgate", "load", "--mix", "real"], "realistic\n"),
    ] {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-euc", COMPLETE, "complete"]).args(words);
        assert_eq!(succeed(bash.current_dir(workspace.path(""))), expected, "{words:?}");
    }
}

/// Completes the last argument as bash does: by the function that the script registers.
const COMPLETE: &str = r#"
set +u
. ./tollgate.bash
function=$(complete -p tollgate | sed 's/.*-F \([^ ]*\).*/\1/')
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
"$function" tollgate "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;
