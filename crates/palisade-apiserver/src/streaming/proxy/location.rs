//! Where a request to a `proxy` subresource goes: the address of a pod, of an endpoint of a Service, or of a node.
//!
//! Implements: the `ResourceLocation` functions of upstream's registries of pods, services and nodes, `SplitSchemeNamePort`, and
//! `IsProxyableIP`: loopback, link-local, multicast and unspecified addresses are never proxied to, because behind them is the
//! API server's own machine. An address of a Service counts only if it is the address of a pod of the same namespace. Other
//! than upstream, the port of a pod may be the name of a container's port. Pure.

use std::net::{IpAddr, Ipv4Addr};

use palisade_apimachinery::Status;
use palisade_apimachinery::rest::path::Get as _;
use palisade_base::go;
use serde_json::Value;

/// What the name of a request consists of: `[scheme:]name[:port]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id<'a> {
    /// Whether the other end is spoken to with TLS.
    pub(super) https: bool,
    /// The name of the object.
    pub(super) name: &'a str,
    /// A number or a name; empty for the only one.
    pub(super) port: &'a str,
}

impl<'a> Id<'a> {
    /// Reads the name of a request; `what` is a `pod`, `service` or `node`.
    pub(super) fn parse(id: &'a str, what: &str) -> Result<Self, Box<Status>> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => ("", "", ""),
        };
        if name.is_empty() || !matches!(scheme, "" | "http" | "https") {
            return Err(Status::bad_request(format!("invalid {what} request {}", go::quote(id))));
        }
        Ok(Self { https: scheme == "https", name, port })
    }
}

/// The other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    /// With TLS.
    pub(super) https: bool,
    /// Its addresses, in the order in which they are tried.
    pub(super) addresses: Vec<(String, u16)>,
    /// The pod behind it, with its uid.
    pub(super) pod: Option<(String, String)>,
}

/// Whether something other than this machine or its link may be behind an address.
pub(super) fn is_proxyable(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            !(v4.is_unspecified()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4 == Ipv4Addr::BROADCAST)
        }
        IpAddr::V6(v6) => {
            !(v6.is_unspecified() || v6.is_loopback() || v6.is_unicast_link_local() || v6.is_multicast())
        }
    }
}

fn not_allowed() -> Box<Status> {
    Status::bad_request("address not allowed")
}

fn unavailable(message: String) -> Box<Status> {
    Status::new(503, "ServiceUnavailable", message)
}

fn invalid_port(port: &str) -> Box<Status> {
    unavailable(format!("error trying to reach service: unknown port {}", go::quote(port)))
}

fn number(port: &str) -> Option<u16> {
    port.parse().ok().filter(|port| *port > 0)
}

const fn usual_port(https: bool) -> u16 {
    if https { 443 } else { 80 }
}

/// The addresses of a pod.
fn addresses(pod: &Value) -> Vec<&str> {
    let status = pod.get("status").unwrap_or(&Value::Null);
    let listed: Vec<&str> = status.list("podIPs").iter().map(|address| address.text("ip")).collect();
    if listed.is_empty() { vec![status.text("podIP")] } else { listed }
}

fn owner(pod: &Value) -> Option<(String, String)> {
    let meta = pod.get("metadata")?;
    Some((meta.text("name").to_owned(), meta.text("uid").to_owned()))
}

/// The location of a pod.
pub(super) fn of_pod(id: Id<'_>, pod: &Value) -> Result<Location, Box<Status>> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let mut ports = spec.list("containers").iter().flat_map(|container| container.list("ports"));
    let container_port = |port: &Value| port.get("containerPort").and_then(Value::as_u64);
    let port = if id.port.is_empty() {
        let first = ports.find_map(container_port);
        // swallowed: a number that is no port is none
        first.and_then(|port| u16::try_from(port).ok()).unwrap_or(usual_port(id.https))
    } else if let Some(port) = number(id.port) {
        port
    } else {
        let named = ports.find(|port| port.text("name") == id.port).and_then(container_port);
        // swallowed: the same
        let named = named.and_then(|port| u16::try_from(port).ok());
        named.ok_or_else(|| invalid_port(id.port))?
    };
    let address = addresses(pod).first().copied().unwrap_or_default();
    // swallowed: what is no address is not allowed
    let parsed = address.parse::<IpAddr>().ok();
    if !parsed.is_some_and(is_proxyable) {
        return Err(not_allowed());
    }
    Ok(Location { https: id.https, addresses: vec![(address.to_owned(), port)], pod: owner(pod) })
}

/// The name of the port of a Service that a request means.
pub(super) fn port_name<'a>(id: Id<'a>, service: Option<&'a Value>) -> Result<&'a str, Box<Status>> {
    // swallowed: what is no number is a name
    let Some(port) = id.port.parse::<i64>().ok() else { return Ok(id.port) };
    let spec = service.and_then(|service| service.get("spec")).unwrap_or(&Value::Null);
    let found = spec.list("ports").iter().find(|own| own.get("port").and_then(Value::as_i64) == Some(port));
    found.map(|port| port.text("name")).ok_or_else(|| {
        unavailable(format!("no service port {port} found for service {}", go::quote(id.name)))
    })
}

/// The location of one of the endpoints of a Service. `pods` finds pods of its namespace, `turn` spreads requests.
pub(super) fn of_endpoints(
    id: Id<'_>,
    port_name: &str,
    namespace: &str,
    endpoints: &Value,
    pods: impl Fn(&str) -> Option<Value>,
    turn: usize,
) -> Result<Location, Box<Status>> {
    let subsets = endpoints.list("subsets");
    for subset in rotated(subsets, turn) {
        let named = subset.list("ports").iter().find(|port| port.text("name") == port_name);
        let port = named.and_then(|port| port.get("port")).and_then(Value::as_u64);
        // swallowed: a number that is no port is none
        let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { continue };
        for address in rotated(subset.list("addresses"), turn) {
            let ip = address.text("ip");
            // swallowed: what is no address is skipped
            if !ip.parse().ok().is_some_and(is_proxyable) {
                continue;
            }
            let Some(target) = address.get("targetRef") else { continue };
            if target.text("namespace") != namespace {
                continue;
            }
            let Some(pod) = pods(target.text("name")) else { continue };
            if addresses(&pod).contains(&ip) {
                let addresses = vec![(ip.to_owned(), port)];
                return Ok(Location { https: id.https, addresses, pod: owner(&pod) });
            }
        }
    }
    Err(unavailable(format!("no endpoints available for service {}", go::quote(id.name))))
}

fn rotated(list: &[Value], turn: usize) -> impl Iterator<Item = &Value> {
    let start = turn.checked_rem(list.len()).unwrap_or_default();
    list.iter().cycle().skip(start).take(list.len())
}

/// The port of a node that is not its kubelet's.
pub(super) fn other_port(id: Id<'_>) -> Result<u16, Box<Status>> {
    number(id.port).ok_or_else(|| invalid_port(id.port))
}

/// The location of another port of a node, of whose name these are the addresses. Each of them must be allowed, so that a name
/// with several addresses leads nowhere else.
pub(super) fn of_addresses(https: bool, port: u16, found: &[IpAddr]) -> Result<Location, Box<Status>> {
    if found.is_empty() || !found.iter().copied().all(is_proxyable) {
        return Err(not_allowed());
    }
    let addresses = found.iter().map(|address| (address.to_string(), port)).collect();
    Ok(Location { https, addresses, pod: None })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(text: &str) -> Id<'_> {
        Id::parse(text, "pod").expect("an id")
    }

    fn shown(found: Result<Location, Box<Status>>) -> String {
        match found {
            Ok(Location { https, addresses, .. }) => {
                let scheme = if https { "https" } else { "http" };
                let addresses: Vec<String> =
                    addresses.iter().map(|(host, port)| format!("{host} {port}")).collect();
                format!("{scheme} {}", addresses.join(", "))
            }
            Err(status) => format!("{} {}", status.code, status.message),
        }
    }

    #[test]
    fn names_have_a_scheme_and_a_port() {
        for (text, expected) in [
            ("web", Some((false, "web", ""))),
            ("web:80", Some((false, "web", "80"))),
            ("http:web:", Some((false, "web", ""))),
            ("https:web:dash", Some((true, "web", "dash"))),
            (":web:80", Some((false, "web", "80"))),
            ("ftp:web:80", None),
            ("HTTPS:web:80", None),
            (":80", None),
            ("", None),
            ("a:b:c:d", None),
        ] {
            let found = Id::parse(text, "pod").ok().map(|id| (id.https, id.name, id.port));
            assert_eq!(found, expected, "{text}");
        }
        let status = Id::parse("a:b:c:d", "service").expect_err("invalid");
        assert_eq!(status.message, "invalid service request \"a:b:c:d\"");
    }

    #[test]
    fn a_pod_is_reached_at_its_own_address_only() {
        let pod = |address: &str, ports: Value| {
            json!({"metadata": {"name": "web", "uid": "u"},
                "spec": {"containers": [{"name": "a"}, {"name": "c", "ports": ports}]},
                "status": {"podIP": address, "podIPs": [{"ip": address}, {"ip": "10.0.0.9"}]}})
        };
        let ports = json!([{"containerPort": 8080}, {"name": "metrics", "containerPort": 9090}]);
        for (name, address, expected) in [
            ("web", "10.1.2.3", "http 10.1.2.3 8080"),
            ("web:81", "10.1.2.3", "http 10.1.2.3 81"),
            ("https:web:81", "fd00::1", "https fd00::1 81"),
            ("web:metrics", "10.1.2.3", "http 10.1.2.3 9090"),
            ("web:other", "10.1.2.3", "503 error trying to reach service: unknown port \"other\""),
            ("web:0", "10.1.2.3", "503 error trying to reach service: unknown port \"0\""),
            ("web:65536", "10.1.2.3", "503 error trying to reach service: unknown port \"65536\""),
            ("web", "127.0.0.1", "400 address not allowed"),
            ("web", "127.8.8.8", "400 address not allowed"),
            ("web", "169.254.169.254", "400 address not allowed"),
            ("web", "224.0.0.1", "400 address not allowed"),
            ("web", "255.255.255.255", "400 address not allowed"),
            ("web", "0.0.0.0", "400 address not allowed"),
            ("web", "::1", "400 address not allowed"),
            ("web", "::ffff:127.0.0.1", "400 address not allowed"),
            ("web", "fe80::1", "400 address not allowed"),
            ("web", "", "400 address not allowed"),
            ("web", "example.com", "400 address not allowed"),
        ] {
            assert_eq!(shown(of_pod(id(name), &pod(address, ports.clone()))), expected, "{name} {address}");
        }
        for (name, expected) in [("web", "http 10.1.2.3 80"), ("https:web:", "https 10.1.2.3 443")] {
            assert_eq!(shown(of_pod(id(name), &pod("10.1.2.3", json!([])))), expected, "{name}");
        }
        assert_eq!(shown(of_pod(id("web"), &json!({"spec": {}}))), "400 address not allowed");
    }

    #[test]
    fn a_service_is_reached_at_the_pods_of_its_namespace() {
        let service = json!({"spec": {"ports": [{"name": "web", "port": 80}, {"name": "dash", "port": 81}]}});
        let address = |ip: &str, namespace: &str, pod: &str| json!({"ip": ip, "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod}});
        let endpoints = |addresses: Value| {
            json!({"subsets": [
                {"addresses": [], "ports": [{"name": "web", "port": 1}]},
                {"addresses": addresses, "ports": [{"name": "web", "port": 8080}, {"name": "dash", "port": 8081}]}]})
        };
        let pods = |name: &str| match name {
            "p" => Some(
                json!({"metadata": {"name": "p", "uid": "u"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}}),
            ),
            "q" => Some(
                json!({"metadata": {"name": "q", "uid": "v"}, "status": {"podIPs": [{"ip": "10.0.0.2"}]}}),
            ),
            "host" => Some(json!({"status": {"podIPs": [{"ip": "127.0.0.1"}]}})),
            _ => None,
        };
        let none = "503 no endpoints available for service \"s\"";
        let own = address("10.0.0.1", "n", "p");
        for (case, name, addresses, expected) in [
            ("by name", "s:web", json!([own]), "http 10.0.0.1 8080"),
            ("by number", "https:s:81", json!([own]), "https 10.0.0.1 8081"),
            ("unknown name", "s:other", json!([own]), none),
            ("no name, and ports have names", "s", json!([own]), none),
            ("unknown number", "s:82", json!([own]), "503 no service port 82 found for service \"s\""),
            ("no pod", "s:web", json!([{"ip": "10.0.0.1"}]), none),
            ("another namespace", "s:web", json!([address("10.0.0.1", "m", "p")]), none),
            ("another pod's address", "s:web", json!([address("10.0.0.2", "n", "p")]), none),
            ("a pod that is gone", "s:web", json!([address("10.0.0.3", "n", "gone")]), none),
            ("this machine", "s:web", json!([address("127.0.0.1", "n", "host")]), none),
            ("the next one", "s:web", json!([address("10.0.0.9", "n", "p"), own]), "http 10.0.0.1 8080"),
        ] {
            let id = id(name);
            let found = port_name(id, Some(&service))
                .and_then(|port| of_endpoints(id, port, "n", &endpoints(addresses), pods, 0));
            assert_eq!(shown(found), expected, "{case}");
        }
        let both = endpoints(json!([own, address("10.0.0.2", "n", "q")]));
        let found: Vec<String> =
            (0..3).map(|turn| shown(of_endpoints(id("s:web"), "web", "n", &both, pods, turn))).collect();
        assert_eq!(found, ["http 10.0.0.1 8080", "http 10.0.0.2 8080", "http 10.0.0.1 8080"]);
        assert_eq!(shown(of_endpoints(id("s"), "", "n", &json!({}), pods, 7)), none);
    }

    #[test]
    fn other_ports_of_nodes_are_not_those_of_this_machine() {
        let parsed =
            |list: &[&str]| list.iter().map(|ip| ip.parse().expect("an address")).collect::<Vec<_>>();
        for (addresses, expected) in [
            (&["10.0.0.1", "fd00::1"][..], "http 10.0.0.1 8080, fd00::1 8080"),
            (&["10.0.0.1", "127.0.0.1"], "400 address not allowed"),
            (&[], "400 address not allowed"),
        ] {
            assert_eq!(shown(of_addresses(false, 8080, &parsed(addresses))), expected, "{addresses:?}");
        }
    }
}
