//! Carriers: programs that start an agent on a host and connect its standard input and output to pipes.
//!
//! All carriers run the same shell script. It looks for the program in the staging folder of the host by its hash,
//! reads it from the pipe if it is missing, and then becomes the agent, on the same pipe.

use crate::staging::Binary;
use std::fmt;
use std::process::Command;
use std::str::FromStr;
use thiserror::Error;

/// Limit of the hosts of one layout.
pub const MAX_HOSTS: usize = 1_000;

/// Where agents run, as in `--on`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    /// `slurm[:N]`: nodes of Slurm, of the job that this process belongs to or of a new one.
    Slurm { nodes: Option<usize> },
    /// `ssh:HOST,HOST`: hosts by ssh, without passwords.
    Ssh { hosts: Vec<String> },
    /// `kubectl:[NAMESPACE/]POD,...`: running pods of Kubernetes.
    Kubectl { pods: Vec<Pod> },
    /// `local[:N]`: agents on this machine, to try a layout.
    Local { agents: Option<usize> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub namespace: Option<String>,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CarrierError {
    #[error(
        "unknown carrier `{0}`; use slurm[:N], ssh:HOST,HOST, kubectl:[NAMESPACE/]POD,... or local[:N]"
    )]
    Unknown(String),
    #[error("invalid number of hosts `{0}`; use 1 to {MAX_HOSTS}")]
    Number(String),
    #[error("no hosts in `{0}`; name at least one, separated by commas")]
    NoHosts(String),
    /// Such a name could be an option of the carrier.
    #[error("invalid host name `{0}`; use letters, digits and `.`, `-`, `_`, `:`, `@`")]
    Name(String),
    #[error("host `{0}` is named twice; each host has one agent")]
    Twice(String),
}

impl FromStr for Carrier {
    type Err = CarrierError;

    fn from_str(text: &str) -> Result<Self, CarrierError> {
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        match kind {
            "slurm" => Ok(Self::Slurm { nodes: rest.map(number).transpose()? }),
            "local" => Ok(Self::Local { agents: rest.map(number).transpose()? }),
            "ssh" => Ok(Self::Ssh { hosts: names(text, rest)? }),
            "kubectl" => {
                let pod = |name: String| match name.split_once('/') {
                    Some((namespace, name)) => {
                        Pod { namespace: Some(namespace.to_owned()), name: name.to_owned() }
                    }
                    None => Pod { namespace: None, name },
                };
                Ok(Self::Kubectl { pods: names(text, rest)?.into_iter().map(pod).collect() })
            }
            _ => Err(CarrierError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |f: &mut fmt::Formatter<'_>, kind: &str, count: &Option<usize>| match count {
            Some(count) => write!(f, "{kind}:{count}"),
            None => f.write_str(kind),
        };
        match self {
            Self::Slurm { nodes } => counted(f, "slurm", nodes),
            Self::Local { agents } => counted(f, "local", agents),
            Self::Ssh { hosts } => write!(f, "ssh:{}", hosts.join(",")),
            Self::Kubectl { pods } => {
                let names: Vec<String> = pods.iter().map(ToString::to_string).collect();
                write!(f, "kubectl:{}", names.join(","))
            }
        }
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

fn number(text: &str) -> Result<usize, CarrierError> {
    let number = text.parse().ok().filter(|number| (1..=MAX_HOSTS).contains(number));
    number.ok_or_else(|| CarrierError::Number(text.to_owned()))
}

fn names(all: &str, rest: Option<&str>) -> Result<Vec<String>, CarrierError> {
    let names: Vec<String> = rest.unwrap_or_default().split(',').map(str::to_owned).collect();
    if names == [""] {
        return Err(CarrierError::NoHosts(all.to_owned()));
    }
    let is_kubectl = all.starts_with("kubectl:");
    for (index, name) in names.iter().enumerate() {
        let parts: Vec<&str> = if is_kubectl { name.split('/').collect() } else { vec![name] };
        if parts.len() > 2 || !parts.iter().all(|part| is_name(part)) {
            return Err(CarrierError::Name(name.clone()));
        }
        if names[..index].contains(name) {
            return Err(CarrierError::Twice(name.clone()));
        }
    }
    Ok(names)
}

fn is_name(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:@".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.bytes().all(is_valid)
}

/// One host of a layout, and how its agent is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentPlace {
    /// A node of the job with this id.
    Slurm {
        job: u32,
        node: String,
    },
    Ssh {
        host: String,
    },
    Kubectl {
        pod: Pod,
    },
    /// An agent on this machine.
    Local {
        number: usize,
    },
}

impl AgentPlace {
    /// Name of the host in plans, reports and errors.
    pub fn name(&self) -> String {
        match self {
            Self::Slurm { node, .. } => node.clone(),
            Self::Ssh { host } => host.clone(),
            Self::Kubectl { pod } => pod.to_string(),
            Self::Local { number } => format!("local-{number}"),
        }
    }

    /// The command that runs the script of `bootstrap` on the host.
    pub fn command(&self, script: &str) -> Command {
        match self {
            Self::Slurm { job, node } => {
                let mut command = Command::new("srun");
                command.args([
                    &format!("--jobid={job}"),
                    &format!("--nodelist={node}"),
                    "--nodes=1",
                    "--ntasks=1",
                    // The job's nodes are exclusive; the agent pins what it starts.
                    "--overlap",
                    "--cpu-bind=none",
                    "--mem=0",
                    "--chdir=/",
                    "--quiet",
                    "--unbuffered",
                ]);
                command.args(["sh", "-c", script]);
                command
            }
            Self::Ssh { host } => {
                let mut command = Command::new("ssh");
                // A dead network is noticed by heartbeats, and ssh then ends by itself.
                command.args(["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5"]);
                // The login shell of the user, of whatever kind, splits the words.
                command.args(["--", host, &shell_words::join(["exec", "sh", "-c", script])]);
                command
            }
            Self::Kubectl { pod } => {
                let mut command = Command::new("kubectl");
                command.args(["exec", "--stdin"]);
                if let Some(namespace) = &pod.namespace {
                    command.args(["--namespace", namespace]);
                }
                command.args([&pod.name, "--", "sh", "-c", script]);
                command
            }
            Self::Local { .. } => {
                let mut command = Command::new("sh");
                command.args(["-c", script]);
                command
            }
        }
    }
}

/// First words of the line that the script prints before the agent starts.
pub(crate) const STAGED: &str = "tollgate-staged:";
pub(crate) const PRESENT: &str = "tollgate-staged: present";
pub(crate) const ABSENT: &str = "tollgate-staged: absent";

/// Returns the script that stages the program and becomes the agent.
///
/// The staging folder belongs to the user, in `$TOLLGATE_STAGE` or `/var/tmp`, which is local to the node where a home
/// is not. Other users cannot write to it, and the program in it is hashed before each use.
pub(crate) fn bootstrap(binary: &Binary) -> String {
    let Binary { sha256, bytes, .. } = binary;
    format!(
        r#"set -eu
umask 077
d="${{TOLLGATE_STAGE:-/var/tmp}}/tollgate-$(id -u)"
mkdir -p "$d"
if [ -L "$d" ] || [ ! -O "$d" ]; then echo "cannot use $d: it belongs to another user" >&2; exit 1; fi
f="$d/{sha256}"
holds() {{ [ "$(sha256sum <"$1" 2>/dev/null)" = "{sha256}  -" ]; }}
if [ -x "$f" ] && holds "$f"; then
  echo "{PRESENT}"
else
  echo "{ABSENT}"
  # Hosts that share the folder may have equal pids.
  t="$f.$(uname -n).$$"
  trap 'rm -f "$t"' EXIT
  head -c {bytes} >"$t"
  if ! holds "$t"; then echo "cannot stage tollgate in $d: the copy differs; check the free space" >&2; exit 1; fi
  chmod 700 "$t"
  # Another agent may have staged it meanwhile, and runs from that file.
  ln "$t" "$f" 2>/dev/null || holds "$f" || mv -f "$t" "$f"
  rm -f "$t"
  trap - EXIT
fi
exec "$f" agent --dir "$d"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carriers_are_parsed_and_printed() {
        for text in
            ["slurm", "slurm:4", "local:2", "ssh:node-1,me@10.0.0.7", "kubectl:web-0,lab/load-1"]
        {
            assert_eq!(text.parse::<Carrier>().unwrap().to_string(), text);
        }
        assert_eq!("slurm:4".parse(), Ok(Carrier::Slurm { nodes: Some(4) }));
        let pods = [(None, "web-0"), (Some("lab"), "load-1")];
        let pods = pods.map(|(namespace, name)| Pod {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        });
        let expected = Carrier::Kubectl { pods: pods.to_vec() };
        assert_eq!("kubectl:web-0,lab/load-1".parse(), Ok(expected));
    }

    #[test]
    fn invalid_carriers_say_what_to_use() {
        for (text, reason) in [
            ("nomad:3", "unknown carrier `nomad:3`; use slurm[:N]"),
            ("slurm:0", "invalid number of hosts `0`; use 1 to 1000"),
            ("slurm:x", "invalid number of hosts `x`"),
            ("ssh", "no hosts in `ssh`"),
            ("ssh:", "no hosts in `ssh:`"),
            ("ssh:a,,b", "invalid host name ``"),
            ("ssh:-oProxyCommand=x", "invalid host name `-oProxyCommand=x`"),
            ("ssh:a b", "invalid host name `a b`"),
            ("ssh:a/b", "invalid host name `a/b`"),
            ("kubectl:a/b/c", "invalid host name `a/b/c`"),
            ("kubectl:--all", "invalid host name `--all`"),
            ("ssh:a,a", "host `a` is named twice"),
        ] {
            let error = text.parse::<Carrier>().unwrap_err().to_string();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }

    fn words(place: &AgentPlace) -> Vec<String> {
        let command = place.command("echo 'a b'");
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn script_is_one_argument_of_each_carrier() {
        let pod = Pod { namespace: Some("lab".to_owned()), name: "load-1".to_owned() };
        assert_eq!(
            words(&AgentPlace::Kubectl { pod }),
            [
                "kubectl",
                "exec",
                "--stdin",
                "--namespace",
                "lab",
                "load-1",
                "--",
                "sh",
                "-c",
                "echo 'a b'"
            ]
        );
        let slurm = words(&AgentPlace::Slurm { job: 7, node: "gen1".to_owned() });
        assert_eq!(slurm[..3], ["srun", "--jobid=7", "--nodelist=gen1"]);
        assert_eq!(slurm[slurm.len() - 3..], ["sh", "-c", "echo 'a b'"]);
        let ssh = words(&AgentPlace::Ssh { host: "me@node".to_owned() });
        assert_eq!(ssh[ssh.len() - 3..ssh.len() - 1], ["--", "me@node"]);
        // The shell of the host takes the words apart again.
        let parts = shell_words::split(&ssh[ssh.len() - 1]).unwrap();
        assert_eq!(parts, ["exec", "sh", "-c", "echo 'a b'"]);
    }
}
