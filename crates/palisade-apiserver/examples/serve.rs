//! The API server alone: `serve KUBECONFIG [DATA_DIR]`, until interrupted.

use std::error::Error;
use std::io::Write as _;

use palisade_apiserver::Server;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let kubeconfig = arguments.next().ok_or("usage: serve KUBECONFIG [DATA_DIR]")?;
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".to_owned()).parse()?;
    let mut builder = Server::builder().kubeconfig(&kubeconfig).listen(listen);
    if let Some(directory) = arguments.next() {
        builder = builder.data_dir(directory);
    }
    let server = builder.start().await?;
    writeln!(std::io::stdout(), "{} {} {}", server.url(), kubeconfig, server.token)?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    server.shutdown().await;
    Ok(())
}
