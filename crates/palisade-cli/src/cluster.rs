//! A client for the cluster that the user means.
//!
//! The same order as kubectl: `--kubeconfig`, `KUBECONFIG`, `~/.kube/config`; inside a pod, its service account.

use std::path::PathBuf;

use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Which cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterArgs {
    /// Kubeconfig of the cluster [default: KUBECONFIG, ~/.kube/config, or the service account inside a pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl ClusterArgs {
    /// A client, or why there is none.
    pub async fn connect(&self) -> Result<Client, String> {
        let config = self.config().await?;
        Client::try_from(config).map_err(|error| format!("cannot use the kubeconfig: {error}"))
    }

    /// How to reach the cluster, for whoever needs more than a client.
    pub async fn config(&self) -> Result<Config, String> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        if let Some(file) = &self.kubeconfig {
            let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
            let read = Kubeconfig::read_from(file).map_err(|error| fail(&error))?;
            return Config::from_custom_kubeconfig(read, &options).await.map_err(|error| fail(&error));
        }
        if self.context.is_none()
            && std::env::var_os("KUBECONFIG").is_none()
            && let Ok(config) = Config::incluster()
        {
            return Ok(config);
        }
        Config::from_kubeconfig(&options).await.map_err(|error| {
            format!("no cluster to talk to: {error}\n  name its kubeconfig with --kubeconfig or KUBECONFIG")
        })
    }
}
