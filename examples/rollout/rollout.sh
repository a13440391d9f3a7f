#!/bin/sh
# Moves a small cluster from Legacy to Restricted and back, with plain kubectl, on `palisade up --openshift`.
# Every step waits for what it expects and the script fails if it does not come. Needs palisade and kubectl on PATH.
set -eu

palisade=${PALISADE:-palisade}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
export KUBECONFIG="$work/kubeconfig"
config=psaenforcementconfig/cluster
server=

stop() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        server=
    fi
}
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# Starts the cluster, or starts it anew as another release: what is stored stays.
up() {
    stop
    rm -f "$KUBECONFIG"
    "$palisade" up --openshift --data-dir "$data" --kubeconfig "$KUBECONFIG" "$@" 2>>"$work/log" &
    server=$!
    for _ in $(seq 100); do
        if [ -s "$KUBECONFIG" ] && kubectl get --raw /readyz >/dev/null 2>&1; then
            return
        fi
        sleep 0.1
    done
    cat "$work/log" >&2
    exit 1
}

step() {
    printf '\n== %s\n' "$*"
}

# get OBJECT JSONPATH: a field, or nothing.
get() {
    kubectl get "$1" -o "jsonpath=$2"
}

# expect OBJECT JSONPATH VALUE: waits for a field to have a value.
expect() {
    for _ in $(seq 150); do
        if [ "$(get "$1" "$2" 2>/dev/null)" = "$3" ]; then
            printf '%s %s is "%s"\n' "$1" "$2" "$3"
            return
        fi
        sleep 0.2
    done
    printf 'FAILED: %s %s is "%s" and not "%s"\n' "$1" "$2" "$(get "$1" "$2")" "$3" >&2
    kubectl get "$config" -o yaml >&2
    exit 1
}

mode='{.status.enforcementMode}'
wanted='{.spec.enforcementMode}'
enforce='{.metadata.labels.pod-security\.kubernetes\.io/enforce}'
state() {
    printf '{.status.violatingNamespaces[?(@.name=="%s")].state}' "$1"
}
bad_pod() {
    kubectl run bad -n "$1" --image=registry.example.com/bad:1 --privileged --dry-run=server -o name
}

data="$work/data"

step 'release n-1: the API exists, labels warn and audit, nothing is enforced'
up --release n-1
kubectl apply -f "$here/cluster"
expect namespace/shop '{.metadata.labels.pod-security\.kubernetes\.io/warn}' restricted
expect "$config" "$mode" ''

step 'release n: three namespaces violate their level, one for each reason; the cluster opts out'
up --release n
expect "$config" "$wanted" Legacy
expect "$config" "$(state by-user)" Current
expect "$config" "$(state no-syncer)" Current
expect "$config" "$(state openshift-addon)" Current
kubectl wait --for=condition=Ready "$config" --timeout=30s
kubectl get "$config"
kubectl get "$config" -o 'jsonpath={range .status.violatingNamespaces[*]}{.state}{"\t"}{.name}{"\t"}{.reason}{"\n"}{end}'
if "$palisade" rollout status; then
    echo 'FAILED: nothing blocks enforcement' >&2
    exit 1
fi

step 'by-user: its service account may now use what the pod needs'
kubectl create rolebinding anyuid -n by-user --clusterrole=system:openshift:scc:anyuid --serviceaccount=by-user:default
expect "$config" "$(state by-user)" Previous

step 'no-syncer: its labels are synced again'
kubectl label namespace no-syncer security.openshift.io/scc.podSecurityLabelSync-
expect "$config" "$(state no-syncer)" Previous

step 'openshift-addon: the command that palisade suggests'
"$palisade" rollout plan | tee "$work/plan.sh" || true
sh "$work/plan.sh"
expect "$config" "$(state openshift-addon)" Previous
"$palisade" rollout status

step 'release n+1: still opted out, until an administrator opts in'
up --release n+1
expect "$config" "$mode" Legacy
expect namespace/shop "$enforce" ''
kubectl patch "$config" --type=merge -p '{"spec":{"enforcementMode":"Restricted"}}'
# Ready is about the spec as it is now, so nothing else has to be waited for.
kubectl wait --for=condition=Ready "$config" --timeout=30s
if [ "$(get "$config" "$mode")" != Restricted ]; then
    echo 'FAILED: ready, and not Restricted' >&2
    kubectl get "$config" -o yaml >&2
    exit 1
fi
expect namespace/shop "$enforce" restricted
expect namespace/by-user "$enforce" baseline
expect namespace/no-syncer "$enforce" privileged
if bad_pod shop; then
    echo 'FAILED: nothing is enforced' >&2
    exit 1
fi
bad_pod no-syncer

step 'every instance reports what it enforces'
kubectl get leases -n palisade-system -l palisade.dev/pod-security-instance \
    -o 'custom-columns=INSTANCE:.metadata.name,ENFORCES:.metadata.annotations.palisade\.dev/pod-security-enforce'

step 'labels of users are not changed'
kubectl label --overwrite namespace shop pod-security.kubernetes.io/enforce=baseline

step 'break-glass: the feature gate reverts everything, global configuration first'
up --release n+1 --feature-gates OpenShiftPodSecurityAdmission=false
expect "$config" "$mode" ''
expect namespace/no-syncer "$enforce" ''
expect namespace/by-user "$enforce" ''
expect namespace/shop "$enforce" baseline
expect namespace/openshift-addon "$enforce" privileged
bad_pod by-user

step 'the feature gate is enabled again'
up --release n+1
expect "$config" "$mode" Restricted
expect namespace/by-user "$enforce" baseline
expect namespace/shop "$enforce" baseline

step 'opting out and in again'
kubectl patch "$config" --type=merge -p '{"spec":{"enforcementMode":"Legacy"}}'
expect "$config" "$mode" Legacy
expect namespace/by-user "$enforce" ''
kubectl patch "$config" --type=merge -p '{"spec":{"enforcementMode":""}}'
expect "$config" "$mode" Restricted
expect namespace/by-user "$enforce" baseline

step 'downgrade to n: labels are removed, nothing is enforced'
up --release n
expect "$config" "$mode" ''
expect namespace/by-user "$enforce" ''
expect namespace/shop "$enforce" baseline
bad_pod by-user
kubectl get events -n default --field-selector involvedObject.kind=PSAEnforcementConfig \
    -o 'custom-columns=REASON:.reason,MESSAGE:.message'

step 'another cluster, upgraded twice before it was evaluated: enforcement begins unchecked'
data="$work/fast"
up --release n-1
kubectl apply -f "$here/cluster" >/dev/null
up --release n+1
expect "$config" "$mode" Restricted
expect namespace/by-user "$enforce" restricted
"$palisade" rollout status || true
kubectl patch "$config" --type=merge -p '{"spec":{"enforcementMode":"Legacy"}}'
expect "$config" "$mode" Legacy
expect namespace/by-user "$enforce" ''

step 'done'
