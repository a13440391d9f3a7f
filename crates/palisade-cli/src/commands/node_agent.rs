//! `palisade node --mode=agent`: the agent beside a kubelet, on a real cluster.
//!
//! The agent itself is `palisade_node::agent`; here its settings are read.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use kube::Client;
use palisade_base::metrics::Registry;
use palisade_node::{
    agent::{self, Settings, files, metrics::PROFILES_READY},
    app_armor::{self, Host},
    kernel::apparmor::{AppArmor, Parser},
    node::NodeConfig,
};
use palisade_serve::status::Status;
use tokio::task::JoinSet;

use crate::{
    args::{ValueError, duration},
    failure::{Exit, Failure},
    service::{self, stopped},
    terminal::Terminal,
};

/// Options of the agent beside a kubelet.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of --mode=agent")]
pub struct AgentArgs {
    /// Mount the tmpfs for profiles and exit; only this requires a privileged container
    #[arg(long)]
    pub prepare_only: bool,
    /// Maximum size of the tmpfs for profiles
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64Mi")]
    pub profile_tmpfs_size: u64,
    /// How often files and containers are verified, in addition to every change
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1m")]
    pub verify_interval: Duration,
    /// Address for /metrics, /healthz and /readyz, over plain HTTP
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_listen: Option<SocketAddr>,
    /// Load the AppArmorProfile objects of namespaces into the kernel, with the apparmor_parser of the host
    #[arg(long)]
    pub apparmor_profiles: bool,
    /// Folder where /sys of the host is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sys_dir: PathBuf,
}

fn size(text: &str) -> Result<u64, ValueError> {
    let form = ValueError::Form("write it as 64Mi");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(form),
    };
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|size| *size > 0).ok_or(form)
}

fn interval(text: &str) -> Result<Duration, ValueError> {
    match duration(text)? {
        duration if duration >= Duration::from_secs(1) => Ok(duration),
        _ => Err(ValueError::Form("write it as 1m or 30s")),
    }
}

struct Reported(Arc<Registry>);

impl Status for Reported {
    fn metrics(&self) -> String {
        self.0.text()
    }

    fn waits_for(&self) -> Option<String> {
        let is_ready = self.0.get(&PROFILES_READY, &[]) == 1;
        (!is_ready).then(|| "profiles are missing".to_owned())
    }
}

/// Mounts the tmpfs.
pub fn prepare(args: &AgentArgs, config: &NodeConfig) -> Result<Exit, Failure> {
    files::prepare(config.profile_folder().root(), args.profile_tmpfs_size).map_err(Failure::incomplete)?;
    Ok(Exit::Clean)
}

/// Runs until SIGTERM or Ctrl-C.
pub async fn serve(
    args: &AgentArgs,
    config: NodeConfig,
    client: Client,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let node = NodeConfig { sys: args.sys_dir.clone(), host_process: Some(1), ..config };
    let metrics = Arc::new(Registry::default());
    if let Some(address) = args.metrics_listen {
        service::serve_status(address, Arc::new(Reported(metrics.clone())), terminal).await?;
    }
    let folder = node.profile_folder().root().join("palisade");
    terminal.report(format!("seccomp profiles of node {} are in {}", node.node_name, folder.display()));
    let settings = Settings {
        verify_every: args.verify_interval,
        tmpfs_size: args.profile_tmpfs_size,
        ..Settings::new(node)
    };
    let mut tasks = JoinSet::new();
    if args.apparmor_profiles {
        let host = Host {
            app_armor: AppArmor::below(&args.sys_dir),
            // The parser of the node, with its libraries: this process may be in a container without any.
            parser: Parser::below(Some(settings.node.proc.join("1/root"))),
            proc: settings.node.proc.clone(),
        };
        tasks.spawn(app_armor::keep(client.clone(), settings.node.node_name.clone(), host));
    }
    agent::run(settings, client, metrics, stopped()).await.map_err(Failure::input)?;
    Ok(Exit::Clean)
}

#[cfg(test)]
mod tests {
    use super::{interval, size};

    #[test]
    fn reads_sizes_and_intervals_in_the_format_of_kubernetes() {
        assert_eq!((size("64Mi"), size("4096"), size("1Gi")), (Ok(64 << 20), Ok(4096), Ok(1 << 30)));
        assert!(
            size("0").is_err()
                && size("64MB").is_err()
                && size("Mi").is_err()
                && size("99999999999Gi").is_err()
        );
        assert_eq!(interval("1m").unwrap().as_secs(), 60);
        assert!(interval("1ms").is_err() && interval("-1m").is_err());
    }
}
