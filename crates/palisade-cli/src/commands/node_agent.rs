//! `palisade node --mode=agent`: the agent beside a kubelet, on a real cluster.
//!
//! The agent itself is `palisade_node::agent`; here its settings are read.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use kube::Client;
use palisade_base::metrics::Registry;
use palisade_node::{
    agent::{self, Settings, files, metrics::PROFILES_READY},
    node::NodeConfig,
};
use palisade_serve::status::{self, Status};

use crate::{
    Exit,
    service::{fail, stopped},
    terminal::Terminal,
};

/// Options of the agent beside a kubelet.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of --mode=agent")]
pub struct AgentArgs {
    /// Mount the tmpfs for profiles and end: all that takes a privileged container
    #[arg(long)]
    pub prepare_only: bool,
    /// How large the tmpfs for profiles may become
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64Mi")]
    pub profile_tmpfs_size: u64,
    /// How often files and containers are verified even if nothing happens
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1m")]
    pub verify_interval: Duration,
    /// Where to serve /metrics, /healthz and /readyz, over plain HTTP
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_listen: Option<SocketAddr>,
    /// The host's /sys
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sys_dir: PathBuf,
}

fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err("write it as 64Mi".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "write it as 64Mi".to_owned())?;
    number.checked_mul(unit).filter(|size| *size > 0).ok_or_else(|| "must be a size".to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let duration = parsed.ok().and_then(|duration| Duration::try_from(duration).ok());
    duration
        .filter(|duration| *duration >= Duration::from_secs(1))
        .ok_or_else(|| "write it as 1m or 30s".to_owned())
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

/// Mounts the tmpfs and ends.
#[must_use]
pub fn prepare(args: &AgentArgs, config: &NodeConfig, terminal: &Terminal) -> Exit {
    match files::prepare(config.profile_folder().root(), args.profile_tmpfs_size) {
        Ok(()) => Exit::Clean,
        Err(error) => fail(terminal, &error.to_string(), Exit::Incomplete),
    }
}

/// Runs until told to stop.
pub async fn serve(args: &AgentArgs, config: NodeConfig, client: Client, terminal: &Terminal) -> Exit {
    let node = NodeConfig { sys: args.sys_dir.clone(), host_process: Some(1), ..config };
    let metrics = Arc::new(Registry::default());
    if let Some(address) = args.metrics_listen {
        match status::listen(address, Arc::new(Reported(metrics.clone()))).await {
            Ok((address, _)) => terminal.say(format!("metrics on http://{address}/metrics")),
            Err(error) => {
                return fail(terminal, &format!("cannot listen on {address}: {error}"), Exit::Incomplete);
            }
        }
    }
    let folder = node.profile_folder().root().join("palisade");
    terminal.say(format!("node {} gets its seccomp profiles in {}", node.node_name, folder.display()));
    let settings = Settings {
        verify_every: args.verify_interval,
        tmpfs_size: args.profile_tmpfs_size,
        ..Settings::new(node)
    };
    match agent::run(settings, client, metrics, stopped()).await {
        Ok(()) => Exit::Clean,
        Err(error) => fail(terminal, &error.to_string(), Exit::Input),
    }
}

#[cfg(test)]
mod tests {
    use super::{interval, size};

    #[test]
    fn sizes_and_intervals_are_read_as_kubernetes_writes_them() {
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
