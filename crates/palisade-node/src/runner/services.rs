//! The variables by which containers find services.
//!
//! Implements: `getServiceEnvVarMap` of the kubelet and `FromServices` of `pkg/kubelet/envvars`: the Service
//! `default/kubernetes` for every pod, and those of the pod's namespace unless `enableServiceLinks` is false.

use std::collections::BTreeMap;

use serde_json::Value;

/// The variables of services, as the API has them.
#[must_use]
pub fn variables(services: &[Value]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for service in services {
        let text = |path: &str| service.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (name, ip) = (variable(text("/metadata/name")), text("/spec/clusterIP"));
        if ip.is_empty() || ip == "None" {
            continue;
        }
        let ports = service.pointer("/spec/ports").and_then(Value::as_array);
        let ports: Vec<Port<'_>> = ports.into_iter().flatten().filter_map(Port::read).collect();
        let Some(first) = ports.first() else { continue };
        let mut set = |key: String, value: String| found.insert(key, value);
        set(format!("{name}_SERVICE_HOST"), ip.to_owned());
        set(format!("{name}_SERVICE_PORT"), first.number.to_string());
        for port in ports.iter().filter(|port| !port.name.is_empty()) {
            set(format!("{name}_SERVICE_PORT_{}", variable(port.name)), port.number.to_string());
        }
        let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
        let url = |port: &Port<'_>| format!("{}://{host}:{}", port.protocol.to_lowercase(), port.number);
        set(format!("{name}_PORT"), url(first));
        for port in &ports {
            let prefix = format!("{name}_PORT_{}_{}", port.number, port.protocol.to_uppercase());
            set(prefix.clone(), url(port));
            set(format!("{prefix}_PROTO"), port.protocol.to_lowercase());
            set(format!("{prefix}_PORT"), port.number.to_string());
            set(format!("{prefix}_ADDR"), ip.to_owned());
        }
    }
    found
}

struct Port<'s> {
    name: &'s str,
    protocol: &'s str,
    number: u64,
}

impl<'s> Port<'s> {
    fn read(port: &'s Value) -> Option<Self> {
        let text = |key: &str| port.get(key).and_then(Value::as_str).unwrap_or_default();
        let protocol = if text("protocol").is_empty() { "TCP" } else { text("protocol") };
        Some(Self { name: text("name"), protocol, number: port.get("port").and_then(Value::as_u64)? })
    }
}

fn variable(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_has_the_variables_of_upstream() {
        let services = [
            json!({"metadata": {"name": "super-duper"}, "spec": {"clusterIP": "9.8.7.6",
                "ports": [{"name": "u-d-p", "port": 8080, "protocol": "UDP"}, {"port": 9090}]}}),
            json!({"metadata": {"name": "headless"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}),
            json!({"metadata": {"name": "none"}, "spec": {"ports": [{"port": 1}]}}),
            json!({"metadata": {"name": "six"}, "spec": {"clusterIP": "2001:db8::1", "ports": [{"port": 1}]}}),
        ];
        let found = variables(&services);
        for (name, value) in [
            ("SUPER_DUPER_SERVICE_HOST", "9.8.7.6"),
            ("SUPER_DUPER_SERVICE_PORT", "8080"),
            ("SUPER_DUPER_SERVICE_PORT_U_D_P", "8080"),
            ("SUPER_DUPER_PORT", "udp://9.8.7.6:8080"),
            ("SUPER_DUPER_PORT_8080_UDP", "udp://9.8.7.6:8080"),
            ("SUPER_DUPER_PORT_8080_UDP_PROTO", "udp"),
            ("SUPER_DUPER_PORT_9090_TCP_PORT", "9090"),
            ("SUPER_DUPER_PORT_9090_TCP_ADDR", "9.8.7.6"),
            ("SIX_PORT", "tcp://[2001:db8::1]:1"),
            ("SIX_PORT_1_TCP_ADDR", "2001:db8::1"),
        ] {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!found.keys().any(|key| key.starts_with("HEADLESS") || key.starts_with("NONE")), "{found:?}");
    }
}
