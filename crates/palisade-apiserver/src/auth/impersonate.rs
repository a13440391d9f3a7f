//! Impersonation of users, groups and service accounts.
//!
//! Implements: Authenticating, "User impersonation".
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>

use http::HeaderMap;
use palisade_apimachinery::Status;
use palisade_apimachinery::rest::names;
use palisade_apimachinery::status::GroupName;

use super::rbac::{Attributes, Authorizer};
use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo};
use crate::http::query::decode;

const EXTRA: &str = "impersonate-extra-";

/// The user that the headers name, or `None` if they name none.
pub fn impersonated(
    headers: &HeaderMap,
    user: &UserInfo,
    authorizer: &Authorizer,
) -> Result<Option<UserInfo>, Box<Status>> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let name = headers.get("impersonate-user").map(text).unwrap_or_default();
    let groups: Vec<String> = headers.get_all("impersonate-group").iter().map(text).collect();
    let uid = headers.get("impersonate-uid").map(text).unwrap_or_default();
    let mut wanted = UserInfo { name, uid, groups, ..UserInfo::default() };
    for (key, value) in headers {
        if let Some(key) = key.as_str().strip_prefix(EXTRA) {
            wanted.extra.entry(decode(key, false)).or_default().push(text(value));
        }
    }
    if wanted.name.is_empty() {
        if wanted.groups.is_empty() && wanted.uid.is_empty() && wanted.extra.is_empty() {
            return Ok(None);
        }
        return Err(Status::bad_request("requested impersonation without impersonating a user"));
    }
    check(&wanted, user, authorizer)?;
    if let Some((namespace, account)) = service_account_name(&wanted.name)
        && wanted.groups.is_empty()
    {
        wanted.groups = UserInfo::service_account(namespace, account, "").groups;
    }
    if wanted.name == ANONYMOUS {
        if !wanted.in_group(UNAUTHENTICATED) {
            wanted.groups.push(UNAUTHENTICATED.to_owned());
        }
    } else if !wanted.in_group(AUTHENTICATED) && !wanted.in_group(UNAUTHENTICATED) {
        wanted.groups.push(AUTHENTICATED.to_owned());
    }
    Ok(Some(wanted))
}

/// `system:serviceaccount:namespace:name`, taken apart.
#[must_use]
pub fn service_account_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_valid = names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(name).is_empty();
    is_valid.then_some((namespace, name))
}

/// Every part that is borrowed needs the verb `impersonate` on it.
fn check(wanted: &UserInfo, user: &UserInfo, authorizer: &Authorizer) -> Result<(), Box<Status>> {
    let authentication = "authentication.k8s.io";
    let mut parts: Vec<(&str, String, String, &str, &str)> = Vec::new();
    match service_account_name(&wanted.name) {
        Some((namespace, name)) => {
            parts.push(("", "serviceaccounts".to_owned(), String::new(), namespace, name));
        }
        None => parts.push(("", "users".to_owned(), String::new(), "", &wanted.name)),
    }
    for group in &wanted.groups {
        parts.push(("", "groups".to_owned(), String::new(), "", group));
    }
    for (key, values) in &wanted.extra {
        for value in values {
            parts.push((authentication, "userextras".to_owned(), key.clone(), "", value));
        }
    }
    if !wanted.uid.is_empty() {
        parts.push((authentication, "uids".to_owned(), String::new(), "", &wanted.uid));
    }
    for (group, resource, subresource, namespace, name) in parts {
        let attributes = Attributes {
            verb: "impersonate",
            group,
            version: "v1",
            resource: &resource,
            subresource: &subresource,
            namespace,
            name,
            ..Attributes::default()
        };
        if !authorizer.authorize(user, &attributes).allowed {
            return Err(Status::forbidden(GroupName::new(group, &resource), name, &attributes.refusal(user)));
        }
    }
    Ok(())
}
