//! `palisade dashboard`: a page about the current cluster, on loopback.

use std::{
    fs::File,
    io::Read as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use clap::Args;
use palisade_base::time::rfc3339;
use palisade_serve::{Limits, certificate::now, serve};
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch};

use super::{exceptions, rollout};
use crate::{
    cluster::ClusterArgs,
    dashboard::{
        page::{DashboardState, UnknownPart, page},
        serve::{Dashboard, Source},
    },
    failure::{Exit, Failure},
    service,
    terminal::Terminal,
};

/// `palisade dashboard`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DashboardArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,
}

const AFTER_HELP: &str = "\
The address that is printed contains a random token, and is valid until the command ends. The page shows what your kubeconfig can
read, changes nothing, and is read anew with every request.

Exit status: 0 ended by a signal, 2 wrong usage or no kubeconfig, 3 could not complete.";

/// Runs the command.
pub fn run(args: &DashboardArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    service::run(terminal, async {
        let cluster = args.cluster.connect().await?;
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.port);
        let unusable = |error| Failure::incomplete(format!("cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(unusable)?;
        let port = listener.local_addr().map_err(unusable)?.port();
        let token = token().map_err(|error| Failure::incomplete(format!("no random bytes: {error}")))?;
        terminal.report(format!("http://127.0.0.1:{port}/{token}/"));
        let (stop, stopped) = watch::channel(false);
        let source = ClusterPage { cluster: args.cluster.clone(), server: cluster.server };
        let serving = serve(
            listener,
            None,
            Limits { connections: 16, ..Limits::default() },
            Arc::new(Dashboard { source, port, token }),
            stopped,
        );
        tokio::select! {
            () = serving => {}
            _ = tokio::signal::ctrl_c() => drop(stop),
        }
        Ok(Exit::Clean)
    })
}

/// 128 random bits, as text for a path.
fn token() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// The page of a cluster.
#[derive(Debug)]
struct ClusterPage {
    cluster: ClusterArgs,
    server: String,
}

impl Source for ClusterPage {
    async fn page(&self) -> String {
        let text = |failure: Failure| UnknownPart(failure.to_string());
        let (rollout, exceptions, nodes) = tokio::join!(
            rollout::of_cluster(&self.cluster),
            exceptions::review_cluster(&self.cluster),
            self.nodes(),
        );
        page(&DashboardState {
            server: self.server.clone(),
            read_at: rfc3339(now()),
            rollout: rollout.map_err(text),
            exceptions: exceptions.map_err(text),
            nodes: nodes.map_err(text),
        })
    }
}

impl ClusterPage {
    /// The reports of the node agents; none where the kind is not served.
    async fn nodes(&self) -> Result<Vec<Value>, Failure> {
        let cluster = self.cluster.connect().await?;
        let path = "/apis/palisade.dev/v1alpha1/nodesecurityreports";
        let Some(mut list) = cluster.send("GET", path, None).await? else { return Ok(Vec::new()) };
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Err(cluster
                .not_an_api_server("the list of nodesecurityreports has no items".to_owned())
                .into()),
        }
    }
}
