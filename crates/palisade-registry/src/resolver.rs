//! Names of hosts to addresses, without those that only this machine or its link has.
//!
//! A name is chosen by whoever writes a reference, or by the registry that redirects. One that leads to this machine would reach services that
//! trust it; to reach a registry here, a reference says so: `localhost`, or a loopback address.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    vec,
};

use hyper_util::client::legacy::connect::dns::Name;

use crate::transport::{is_local_address, is_loopback};

/// The resolver of the system, within these bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolver;

impl tower::Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            usable(name.as_str(), found).map(Vec::into_iter)
        })
    }
}

fn usable(name: &str, found: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    if is_loopback(name) {
        return Ok(found);
    }
    let usable: Vec<SocketAddr> =
        found.into_iter().filter(|address| !is_local_address(address.ip())).collect();
    if usable.is_empty() {
        return Err(io::Error::other("the name leads to the machine itself or its link"));
    }
    Ok(usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_this_machine_only_if_it_says_so() {
        let at = |address: &str| vec![SocketAddr::new(address.parse().unwrap(), 0)];
        for (name, address, is_usable) in [
            ("localhost", "127.0.0.1", true),
            ("registry.example.com", "127.0.0.1", false),
            ("registry.example.com", "::1", false),
            ("registry.example.com", "169.254.169.254", false),
            ("registry.example.com", "0.0.0.0", false),
            ("registry.example.com", "::ffff:127.0.0.1", false),
            // Other ways to write 127.0.0.1, which resolvers read.
            ("127.1", "127.0.0.1", false),
            ("2130706433", "127.0.0.1", false),
            ("registry.example.com", "10.0.0.9", true),
            ("registry.example.com", "192.0.2.1", true),
        ] {
            assert_eq!(usable(name, at(address)).is_ok(), is_usable, "{name} {address}");
        }
        let both = [at("127.0.0.1"), at("192.0.2.1")].concat();
        assert_eq!(usable("registry.example.com", both).unwrap(), at("192.0.2.1"));
    }
}
