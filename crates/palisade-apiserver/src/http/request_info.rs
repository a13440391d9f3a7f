//! What a request requests: verb, group, version, namespace, resource, name, subresource; or a plain path.
//!
//! Implements: Kubernetes API Concepts, "Resource URIs", and Authorization Overview, "Determine the request verb".
//! <https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb>

use http::Method;
use palisade_apimachinery::selector::FieldSelector;

use super::Query;
use super::query::decode;

/// The parts of a request that authorisation and dispatch look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path names a resource.
    pub is_resource: bool,
    /// The decoded path.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, …; the lower-case method for plain paths.
    pub verb: &'static str,
    /// API group, empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, empty for cluster-scoped requests.
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Object name; for lists, the name a field selector requests.
    pub name: String,
    /// Subresource, with what follows it.
    pub subresource: String,
    /// Whether the name stands in the path.
    pub named: bool,
    /// The node that a field selector restricts a list to.
    pub node: String,
    /// The path has more segments than a resource can have.
    pub trailing: bool,
    /// What follows `proxy` in the path, as it was sent.
    pub subpath: String,
}

const NAMESPACE_SUBRESOURCES: &[&str] = &["status", "finalize"];

impl RequestInfo {
    /// Reads method, path and query.
    #[must_use]
    pub fn parse(method: &Method, raw_path: &str, query: &Query) -> Self {
        let path = decode(raw_path, false);
        let mut info = Self { path, verb: method_verb(method), ..Self::default() };
        let segments: Vec<String> =
            raw_path.split('/').filter(|s| !s.is_empty()).map(|s| decode(s, false)).collect();
        let rest = match segments.split_first() {
            Some((first, rest)) if first == "api" => rest,
            Some((first, rest)) if first == "apis" && rest.len() >= 3 => {
                let Some((group, rest)) = rest.split_first() else { return info };
                info.group.clone_from(group);
                rest
            }
            _ => return info,
        };
        let Some((version, mut rest)) = rest.split_first() else {
            return info;
        };
        if rest.is_empty() {
            info.group.clear();
            return info;
        }
        info.version.clone_from(version);
        // The long deprecated way to watch.
        let mut old_watch = false;
        if rest.first().is_some_and(|s| s == "watch") && rest.len() > 1 {
            old_watch = true;
            rest = rest.get(1..).unwrap_or_default();
        }
        if let [first, namespace, more @ ..] = rest
            && first == "namespaces"
        {
            info.namespace.clone_from(namespace);
            let is_namespace_itself =
                more.first().is_none_or(|s| NAMESPACE_SUBRESOURCES.contains(&s.as_str()));
            if !is_namespace_itself {
                rest = more;
            }
        }
        info.is_resource = true;
        let mut parts = rest.iter();
        info.resource = parts.next().cloned().unwrap_or_default();
        if let Some(name) = parts.next() {
            info.name.clone_from(name);
            info.named = true;
        }
        if let Some(subresource) = parts.next() {
            info.subresource.clone_from(subresource);
        }
        if info.subresource == "proxy" {
            after_segments(raw_path, segments.len() - parts.len()).clone_into(&mut info.subpath);
        }
        info.trailing = parts.next().is_some();
        if info.resource == "namespaces" && info.group.is_empty() {
            info.namespace.clone_from(&info.name);
        }
        info.verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if info.named => "delete",
            Method::DELETE => "deletecollection",
            Method::GET | Method::HEAD if old_watch || (!info.named && query.flag("watch")) => "watch",
            Method::GET | Method::HEAD if !info.named => "list",
            Method::GET | Method::HEAD => "get",
            _ => "",
        };
        if !info.named
            && matches!(info.verb, "list" | "watch" | "deletecollection")
            && let Some(selector) = query.get("fieldSelector")
        {
            info.name = selected_name(selector).unwrap_or_default();
            info.node = FieldSelector::exact_value_in(selector, "spec.nodeName").unwrap_or_default();
        }
        info
    }
}

/// What follows some segments of a path, with its slash.
fn after_segments(path: &str, segments: usize) -> &str {
    let mut rest = path;
    for _ in 0..segments {
        rest = rest.trim_start_matches('/');
        rest = rest.get(rest.find('/').unwrap_or(rest.len())..).unwrap_or_default();
    }
    rest
}

/// A list for one name is authorised as a request for that object. The selector is read by the parser that also selects:
/// a second reading could find a name where none is selected.
fn selected_name(selector: &str) -> Option<String> {
    let name = FieldSelector::exact_name_in(selector)?;
    invalid_path_segment(&name).is_none().then_some(name)
}

fn method_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

/// What is wrong with a name taken from a path, in upstream's words.
#[must_use]
pub fn invalid_path_segment(name: &str) -> Option<String> {
    match name {
        "." => return Some("may not be '.'".to_owned()),
        ".." => return Some("may not be '..'".to_owned()),
        _ => {}
    }
    let mut problems = Vec::new();
    for forbidden in ['/', '%'] {
        if name.contains(forbidden) {
            problems.push(format!("may not contain '{forbidden}'"));
        }
    }
    (!problems.is_empty()).then(|| problems.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(method: &Method, uri: &str) -> String {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let i = RequestInfo::parse(method, path, &Query::parse(query));
        format!(
            "{} {} {}/{} ns={} name={} sub={}",
            i.verb, i.is_resource, i.group, i.resource, i.namespace, i.name, i.subresource
        )
    }

    #[test]
    fn reads_paths_as_upstream_does() {
        for (method, uri, expected) in [
            (Method::GET, "/api/v1/pods", "list true /pods ns= name= sub="),
            (Method::GET, "/api/v1/namespaces/a/pods?watch=1", "watch true /pods ns=a name= sub="),
            (Method::GET, "/api/v1/namespaces/a", "get true /namespaces ns=a name=a sub="),
            (
                Method::PUT,
                "/api/v1/namespaces/a/finalize",
                "update true /namespaces ns=a name=a sub=finalize",
            ),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "patch true apps/deployments ns=a name=d sub=scale",
            ),
            (Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection true /pods ns=a name= sub="),
            (Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list true /pods ns= name=x sub="),
            (Method::GET, "/apis/apps/v1", "get false / ns= name= sub="),
            (Method::GET, "/api", "get false / ns= name= sub="),
            (Method::GET, "/healthz", "get false / ns= name= sub="),
            (Method::GET, "/api/v1/namespaces/a/pods/%2e%2e", "get true /pods ns=a name=.. sub="),
            (Method::GET, "/api/v1/namespaces/a/pods/x%2Fy", "get true /pods ns=a name=x/y sub="),
            (
                Method::POST,
                "/api/v1/namespaces/a/pods/https:x:80/proxy/b/c",
                "create true /pods ns=a name=https:x:80 sub=proxy",
            ),
        ] {
            assert_eq!(summary(&method, uri), expected, "{method} {uri}");
        }
    }

    #[test]
    fn keeps_the_path_behind_a_proxy_as_it_was_sent() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/pods/x/proxy", ""),
            ("/api/v1/namespaces/a/pods/x/proxy/", "/"),
            ("/api/v1/namespaces/a/services/x/proxy/b%2Fc/d/", "/b%2Fc/d/"),
            ("//api/v1//nodes/x/proxy//proxy/e", "//proxy/e"),
            ("/api/v1/namespaces/a/pods/x/log/proxy/b", ""),
        ] {
            let info = RequestInfo::parse(&Method::GET, path, &Query::default());
            assert_eq!(info.subpath, expected, "{path}");
        }
    }
}
