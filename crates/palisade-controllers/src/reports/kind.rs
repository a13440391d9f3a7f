//! Which kind of report the cluster has.

use serde_json::Value;

use crate::api::{Api, ApiError, Resource};

/// A kind of report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    /// `Report` of `openreports.io/v1alpha1`.
    OpenReports,
    /// `PolicyReport` of `wgpolicyk8s.io/v1alpha2`.
    PolicyReport,
}

impl ReportKind {
    /// In the order of preference.
    const ALL: [Self; 2] = [Self::OpenReports, Self::PolicyReport];

    /// Where its objects are.
    #[must_use]
    pub const fn resource(self) -> Resource {
        match self {
            Self::OpenReports => Resource::new("openreports.io", "v1alpha1", "reports"),
            Self::PolicyReport => Resource::new("wgpolicyk8s.io", "v1alpha2", "policyreports"),
        }
    }

    /// Its `kind`.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::OpenReports => "Report",
            Self::PolicyReport => "PolicyReport",
        }
    }

    /// Its `apiVersion`.
    #[must_use]
    pub fn api_version(self) -> String {
        let Resource { group, version, .. } = self.resource();
        format!("{group}/{version}")
    }

    /// The kind that the cluster serves; `None` if it serves neither.
    pub async fn served(api: &Api) -> Result<Option<Self>, ApiError> {
        for kind in Self::ALL {
            let found = api.get(&format!("/apis/{}", kind.api_version())).await?;
            if found.is_some_and(|list| has_resource(&list, kind.resource().plural)) {
                return Ok(Some(kind));
            }
        }
        Ok(None)
    }
}

fn has_resource(list: &Value, plural: &str) -> bool {
    let mut resources = list["resources"].as_array().into_iter().flatten();
    resources.any(|resource| resource["name"] == plural)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ReportKind, has_resource};

    #[test]
    fn a_group_alone_is_not_the_kind() {
        let list = json!({"resources": [{"name": "clusterreports"}, {"name": "reports/status"}]});
        assert!(!has_resource(&list, "reports"));
        assert!(has_resource(&json!({"resources": [{"name": "reports"}]}), "reports"));
        assert!(!has_resource(&json!({}), "reports"));
        assert_eq!(ReportKind::PolicyReport.api_version(), "wgpolicyk8s.io/v1alpha2");
    }
}
