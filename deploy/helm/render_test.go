package helm

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	strict "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	folder    = "tidemark"
	namespace = "data"
)

// cases are the values that all checks of rendered objects go through.
var cases = map[string]string{
	"defaults": ``,
	"one core server": `
core: {replicas: 1}
nodes: {replicas: 1}
`,
	"five core servers": `
core: {replicas: 5}
nodes: {replicas: 7}
`,
	"combined": `
combined: true
`,
	"combined, one server": `
combined: true
core: {replicas: 1}
`,
	"combined, over zones, with further nodes": `
combined: true
core: {zones: [a, b, c]}
nodes: {replicas: 3, zones: [a, b, c]}
`,
	"existing secret": `
clusterSecret: {existingSecret: mine, key: the.secret}
`,
	"TLS by secrets": `
tls:
  enabled: true
  secretName: servers
  clientCA: {secretName: clients}
  peerCA: {configMapName: authority, key: servers.pem}
  peerName: server.tidemark
  admins: [admin, "the operator"]
tests: {clientSecretName: tester}
`,
	"TLS by secrets, with the authority in them": `
tls:
  enabled: true
  secretName: servers
  clientCA: {configMapName: clients, key: clients.pem}
`,
	"cert-manager": `
tls:
  enabled: true
  certManager: {enabled: true}
`,
	"cert-manager, a name for each pod": `
core: {replicas: 5}
nodes: {replicas: 4, zones: [a, {name: b, zone: Zone_B}]}
tls:
  enabled: true
  peerName: server.tidemark
  certManager:
    enabled: true
    wildcard: false
    extraDNSNames: [db.example]
    extraIPAddresses: [10.0.0.1]
    clients: [admin, app]
`,
	"cert-manager, with issuers": `
combined: true
tls:
  enabled: true
  clientCA: {configMapName: clients}
  certManager:
    enabled: true
    issuerRef: {name: servers, kind: ClusterIssuer, group: cert-manager.io}
    clientIssuerRef: {name: clients, kind: ClusterIssuer, group: cert-manager.io}
monitoring: {serviceMonitor: {enabled: true}}
`,
	"zones": `
core: {replicas: 5, zones: [a, b, c]}
nodes: {replicas: 8, zones: [a, b, {name: c, zone: europe-west1-c}]}
locality: {region: eu}
rollout: node-b
`,
	"zones of the pods' labels": `
locality: {region: eu, fromPodLabels: true}
`,
	"monitoring": `
monitoring:
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
  dashboards: {enabled: true, annotations: {folder: Tidemark}}
`,
	"monitoring with TLS": `
tls:
  enabled: true
  certManager: {enabled: true}
monitoring: {serviceMonitor: {enabled: true}}
`,
	"everything else": `
nameOverride: store
image: {tag: v1, digest: "", command: [/opt/tidemark], pullPolicy: Always}
imagePullSecrets: [{name: registry}]
clusterDomain: example.internal
core:
  extraArgs: [--cache=1GiB, --kernel-clock-bound]
  storage: {size: 10Gi, storageClassName: fast}
  nodeSelector: {disk: fast}
  tolerations: [{key: dedicated, operator: Exists}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Exists}]}]
  priorityClassName: high
  podAnnotations: {a: b}
  podLabels: {team: data}
nodes:
  extraArgs: [--min-free=1GiB]
  nodeSelector: {disk: fast}
ports: {tidemark: 9000, http: 9001}
service: {type: LoadBalancer, port: 80, annotations: {internal: "true"}}
log: {level: info, format: text}
topologySpread: {zone: DoNotSchedule, host: ""}
serviceAccount: {create: false, name: other}
extraEnv: [{name: GOMEMLIMIT, value: 3GiB}]
`,
}

// eachCase runs a check for the objects of all cases.
func eachCase(t *testing.T, check func(*testing.T, *objects)) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) { check(t, mustRender(t, release{values: cases[name]})) })
	}
}

// release is what is given to Helm. The zero value is an installation with the chart's defaults.
type release struct {
	name    string // "db" unless given
	values  string // YAML
	upgrade bool
	// cluster is what the cluster has (lookup); nil is without a cluster.
	cluster engine.ClientProvider
	// change alters the chart before it is rendered.
	change func(*chartv2.Chart)
}

// parse gives the values, with those that the chart has no default for, unless there are others.
func (r release) parse() (map[string]any, error) {
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(r.values), &values); err != nil {
		return nil, err
	}
	image, ok := values["image"].(map[string]any)
	if !ok {
		image = map[string]any{}
		values["image"] = image
	}
	for key, value := range map[string]any{"repository": "registry.example/tidemark", "tag": "v0"} {
		if _, given := image[key]; !given {
			image[key] = value
		}
	}
	return values, nil
}

// render gives the files that Helm makes of the chart.
func render(r release) (map[string]string, error) {
	chart, err := loader.LoadDir(folder)
	if err != nil {
		return nil, err
	}
	if r.change != nil {
		r.change(chart)
	}
	values, err := r.parse()
	if err != nil {
		return nil, err
	}
	if r.name == "" {
		r.name = "db"
	}
	top, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: r.name,
		Namespace: namespace, Revision: 1, IsInstall: !r.upgrade, IsUpgrade: r.upgrade}, nil)
	if err != nil {
		return nil, err
	}
	if r.cluster != nil {
		return engine.RenderWithClientProvider(chart, top, r.cluster)
	}
	return engine.Render(chart, top)
}

// objects are what a release consists of, in no order.
type objects struct {
	statefulSets  []*apps.StatefulSet
	services      []*core.Service
	budgets       []*policy.PodDisruptionBudget
	secrets       []*core.Secret
	configMaps    []*core.ConfigMap
	accounts      []*core.ServiceAccount
	pods          []*core.Pod
	certificates  []*certmanager.Certificate
	issuers       []*certmanager.Issuer
	monitors      []*monitoring.ServiceMonitor
	rules         []*monitoring.PrometheusRule
	all           []meta.Object
	notes, values string
}

func mustRender(t *testing.T, r release) *objects {
	t.Helper()
	files, err := render(r)
	if err != nil {
		t.Fatal(err)
	}
	o := &objects{values: r.values}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(path, "NOTES.txt") {
			o.notes = files[path]
			continue
		}
		for _, document := range documents(files[path]) {
			if err := o.add(document); err != nil {
				t.Fatalf("%s: %v in:\n%s", path, err, document)
			}
		}
	}
	return o
}

var separator = regexp.MustCompile(`(?m)^---$`)

// documents are those of a file that hold more than comments.
func documents(file string) []string {
	var found []string
	for _, document := range separator.Split(file, -1) {
		for line := range strings.Lines(document) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				found = append(found, document)
				break
			}
		}
	}
	return found
}

func (o *objects) add(document string) error {
	text, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		return err
	}
	var kind meta.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return err
	}
	var object meta.Object
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 StatefulSet":
		object, err = decode(text, &o.statefulSets)
	case "v1 Service":
		object, err = decode(text, &o.services)
	case "policy/v1 PodDisruptionBudget":
		object, err = decode(text, &o.budgets)
	case "v1 Secret":
		object, err = decode(text, &o.secrets)
	case "v1 ConfigMap":
		object, err = decode(text, &o.configMaps)
	case "v1 ServiceAccount":
		object, err = decode(text, &o.accounts)
	case "v1 Pod":
		object, err = decode(text, &o.pods)
	case "cert-manager.io/v1 Certificate":
		object, err = decode(text, &o.certificates)
	case "cert-manager.io/v1 Issuer":
		object, err = decode(text, &o.issuers)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		object, err = decode(text, &o.monitors)
	case "monitoring.coreos.com/v1 PrometheusRule":
		object, err = decode(text, &o.rules)
	default:
		err = fmt.Errorf("no check knows %s %s", kind.APIVersion, kind.Kind)
	}
	if err == nil {
		o.all = append(o.all, object)
	}
	return err
}

// decode refuses fields that the type does not have, or has in another case.
func decode[T any](text []byte, into *[]*T) (meta.Object, error) {
	object := new(T)
	unknown, err := strict.UnmarshalStrict(text, object)
	if err == nil && len(unknown) > 0 {
		err = unknown[0]
	}
	if err != nil {
		return nil, err
	}
	*into = append(*into, object)
	return any(object).(meta.Object), nil
}

// server is the container of a StatefulSet in which the server runs.
func server(set *apps.StatefulSet) *core.Container { return &set.Spec.Template.Spec.Containers[0] }

// flag is the value of a flag of a server; false: it is not given.
func flag(container *core.Container, name string) (string, bool) {
	for _, arg := range container.Args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value, true
		}
		if arg == "--"+name {
			return "", true
		}
	}
	return "", false
}

// hosts are the names in the DNS of the pods of a StatefulSet.
func hosts(set *apps.StatefulSet, domain string) []string {
	var names []string
	for i := range int(*set.Spec.Replicas) {
		names = append(names, fmt.Sprintf("%s-%d.%s.%s.svc.%s", set.Name, i, set.Spec.ServiceName,
			set.Namespace, domain))
	}
	return names
}

// domain is the domain of the Kubernetes cluster in the values of a case.
func (o *objects) domain() string {
	if strings.Contains(o.values, "example.internal") {
		return "example.internal"
	}
	return "cluster.local"
}

func component(object meta.Object) string {
	return object.GetLabels()["app.kubernetes.io/component"]
}
