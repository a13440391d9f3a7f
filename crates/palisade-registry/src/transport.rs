//! The way to a registry: which scheme a host is reached by, and where a redirect may lead.

use std::net::{IpAddr, Ipv4Addr};

use http::{Uri, uri::Scheme};
use palisade_model::profile::artifact::Repository;

use crate::client::RegistryError;

/// How registries are reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// HTTPS, with certificates of authorities that the machine trusts.
    #[default]
    Https,
    /// Plain HTTP to registries on loopback addresses, where nobody is in between; HTTPS to all others.
    PlainHttpOnLoopback,
}

/// Whether a host is this machine.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match host.parse() {
        Ok(IpAddr::V4(address)) => address.is_loopback(),
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|mapped| mapped.is_loopback())
        }
        // swallowed: a name is no address
        Err(_) => host == "localhost",
    }
}

/// Whether an address is only for this machine or its link: metadata services of clouds are there.
fn is_local(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let bare = bare.trim_end_matches('.').to_ascii_lowercase();
    // swallowed: a name is no address
    let is_local = bare.parse().map_or_else(|_| bare.ends_with(".localhost"), is_local_address);
    is_local || is_loopback(&bare)
}

/// Whether an address is only for this machine or its link.
pub(crate) fn is_local_address(address: IpAddr) -> bool {
    let is_near =
        |address: Ipv4Addr| address.is_loopback() || address.is_link_local() || address.is_unspecified();
    match address {
        IpAddr::V4(address) => is_near(address),
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unicast_link_local()
                || address.to_ipv4_mapped().is_some_and(is_near)
        }
    }
}

/// Scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    scheme: Scheme,
    host: String,
    port: u16,
}

impl Origin {
    /// Where the API of a registry is.
    pub(crate) fn of(repository: &Repository, transport: Transport) -> Result<Self, RegistryError> {
        let plain = transport == Transport::PlainHttpOnLoopback && is_loopback(repository.host());
        // The API of Docker Hub has another name than the registry in references.
        let registry = match repository.registry.as_str() {
            "docker.io" | "index.docker.io" => "registry-1.docker.io",
            registry => registry,
        };
        let text = format!("{}://{registry}/", if plain { "http" } else { "https" });
        let uri = text.parse::<Uri>().map_err(|_| RegistryError::Address(text.clone()))?;
        Self::of_uri(&uri).ok_or(RegistryError::Address(text))
    }

    /// `None` without a host, and with a user's name in it.
    pub(crate) fn of_uri(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme().filter(|scheme| **scheme == Scheme::HTTPS || **scheme == Scheme::HTTP)?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let usual = if *scheme == Scheme::HTTPS { 443 } else { 80 };
        let port = authority.port_u16().unwrap_or(usual);
        Some(Self { scheme: scheme.clone(), host: authority.host().to_ascii_lowercase(), port })
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.scheme == Scheme::HTTP
    }

    /// The address of something below `/v2/`.
    pub(crate) fn at(&self, path: &str) -> Result<Uri, RegistryError> {
        let Self { scheme, host, port } = self;
        let text = format!("{scheme}://{host}:{port}/v2/{path}");
        text.parse().map_err(|_| RegistryError::Address(text))
    }

    /// Where an address of a registry's answer leads: below the address that was asked, or to another origin.
    ///
    /// A registry that is reached by HTTPS leads nowhere without it, and not to this machine or its link, whose services take requests
    /// from here for those of the machine itself.
    pub(crate) fn leads_to(&self, asked: &Uri, location: &str) -> Result<Uri, RegistryError> {
        let refused = |why: &'static str| RegistryError::Redirect { location: location.to_owned(), why };
        let absolute = if location.starts_with('/') && !location.starts_with("//") {
            let origin =
                Self::of_uri(asked).ok_or_else(|| refused("there is nothing that it is relative to"))?;
            format!("{}://{}:{}{location}", origin.scheme, origin.host, origin.port)
        } else {
            location.to_owned()
        };
        let uri = absolute.parse::<Uri>().map_err(|_| refused("it is not an address"))?;
        let target = Self::of_uri(&uri).ok_or_else(|| refused("it is not an address of HTTPS"))?;
        self.may_lead_to(&target).map_err(refused)?;
        Ok(uri)
    }

    /// Whether what a registry names may be reached.
    pub(crate) fn may_lead_to(&self, target: &Self) -> Result<(), &'static str> {
        if target == self {
            return Ok(());
        }
        match (self.is_plain(), target.is_plain()) {
            (false, true) => Err("it leaves HTTPS"),
            (true, true) if !is_loopback(&target.host) => Err("plain HTTP is for loopback addresses"),
            (false, false) if is_local(&target.host) => Err("it leads to the machine itself or its link"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::profile::artifact::PushTarget;

    use super::*;

    fn origin(repository: &str, transport: Transport) -> Origin {
        Origin::of(&PushTarget::parse(repository).unwrap().repository, transport).unwrap()
    }

    #[test]
    fn plain_http_is_for_loopback_alone() {
        for (repository, plain) in [
            ("localhost:5000/a", true),
            ("127.0.0.1:5000/a", true),
            ("127.8.9.1:5000/a", true),
            ("[::1]:5000/a", true),
            ("registry.example.com/a", false),
            ("localhost.example.com/a", false),
            ("127.0.0.1.example.com/a", false),
            ("10.0.0.1:5000/a", false),
        ] {
            assert_eq!(origin(repository, Transport::PlainHttpOnLoopback).is_plain(), plain, "{repository}");
            assert!(!origin(repository, Transport::Https).is_plain(), "{repository}");
        }
    }

    #[test]
    fn redirects_keep_https_and_stay_away_from_the_machine() {
        let registry = origin("registry.example.com/a", Transport::PlainHttpOnLoopback);
        let local = origin("localhost:5000/a", Transport::PlainHttpOnLoopback);
        let leads = |origin: &Origin, location: &str| {
            let asked = origin.at("a/blobs/x").unwrap();
            origin.leads_to(&asked, location).map(|uri| uri.to_string()).map_err(|error| error.to_string())
        };
        for (location, expected) in [
            ("/v2/other", "https://registry.example.com:443/v2/other"),
            ("https://storage.example.org/x?signature=y", "https://storage.example.org/x?signature=y"),
            ("https://10.0.0.9/x", "https://10.0.0.9/x"),
        ] {
            assert_eq!(leads(&registry, location).as_deref(), Ok(expected));
        }
        for (location, why) in [
            ("http://registry.example.com/x", "it leaves HTTPS"),
            ("http://127.0.0.1:10255/pods", "it leaves HTTPS"),
            ("https://127.0.0.1:10250/pods", "the machine itself"),
            ("https://localhost:10250/pods", "the machine itself"),
            ("https://x.localhost/", "the machine itself"),
            ("https://LOCALHOST./", "the machine itself"),
            ("https://[::1]:10250/pods", "the machine itself"),
            ("https://[::ffff:127.0.0.1]/x", "the machine itself"),
            ("https://169.254.169.254/latest", "the machine itself"),
            ("https://0.0.0.0/x", "the machine itself"),
            ("//evil.example.org/x", "not an address"),
            ("https://user@evil.example.org/x", "not an address of HTTPS"),
            ("file:///etc/passwd", "not an address"),
            ("x", "not an address"),
            ("", "not an address"),
        ] {
            let error = leads(&registry, location).unwrap_err();
            assert!(error.contains(why), "{location}: {error}");
        }
        assert!(leads(&local, "http://127.0.0.1:6000/x").is_ok());
        assert!(leads(&local, "http://registry.example.com/x").unwrap_err().contains("loopback"));
    }
}
