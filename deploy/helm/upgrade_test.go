package helm

import (
	"context"
	"strings"
	"testing"

	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// cluster is what the function lookup finds: the objects of the namespace by "KIND NAME".
type cluster map[string]map[string]any

func (c cluster) GetClientFor(_, kind string) (
	dynamic.NamespaceableResourceInterface, bool, error) {
	return resource{kind: kind, of: c}, true, nil
}

type resource struct {
	dynamic.NamespaceableResourceInterface
	kind string
	of   cluster
}

func (r resource) Namespace(string) dynamic.ResourceInterface { return r }

func (r resource) Get(_ context.Context, name string, _ meta.GetOptions,
	_ ...string) (*unstructured.Unstructured, error) {
	if object, ok := r.of[r.kind+" "+name]; ok {
		return &unstructured.Unstructured{Object: object}, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: r.kind}, name)
}

// installed is a cluster in which the chart was installed with the values.
func installed(t *testing.T, values string) cluster {
	t.Helper()
	there := cluster{}
	for _, config := range mustRender(t, release{values: values, cluster: cluster{}}).configMaps {
		data := map[string]any{}
		for key, value := range config.Data {
			data[key] = value
		}
		there["ConfigMap "+config.Name] = map[string]any{"data": data}
	}
	return there
}

// What cannot change once a cluster exists is refused before anything is changed; what can is not.
func TestUpgrades(t *testing.T) {
	zones := "nodes: {replicas: 6, zones: [a, b, c]}\n"
	for _, c := range []struct{ name, from, to, refused string }{
		{"nothing", "", "", ""},
		{"more nodes", "", "nodes: {replicas: 5}", ""},
		{"fewer nodes", "", "nodes: {replicas: 2}", "node has 3 servers and would have 2"},
		{"fewer nodes, at a risk", "", "nodes: {replicas: 2, allowFewer: true}", ""},
		{"no nodes", "", "nodes: {replicas: 0}", "node has 3 servers and would have 0"},
		{"more nodes in zones", zones, "nodes: {replicas: 7, zones: [a, b, c]}", ""},
		{"another zone", zones, "nodes: {replicas: 8, zones: [a, b, c, d]}", ""},
		{"another zone that takes nodes", zones, "nodes: {replicas: 6, zones: [a, b, c, d]}",
			"node-c has 2 servers and would have 1"},
		{"zones that were not there", "", zones, "node has 3 servers and would have 0"},
		{"more core servers", "", "core: {replicas: 5}", "the core servers of a cluster cannot change"},
		{"core servers in zones", "", "core: {zones: [a]}",
			"the core servers of a cluster cannot change"},
		{"another port", "", "ports: {tidemark: 7500}", "the core servers of a cluster cannot change"},
		{"another domain", "", "clusterDomain: x.y", "the core servers of a cluster cannot change"},
		{"core servers with data", "", "{combined: true, nodes: {replicas: 3}}", ""},
		{"core servers without data", "combined: true", "combined: false", "combined has to stay true"},
		{"TLS", "", cases["cert-manager"], ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := render(release{values: c.to, upgrade: true, cluster: installed(t, c.from)})
			switch {
			case c.refused == "" && err != nil:
				t.Error(err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("got %v; want %q", err, c.refused)
			}
		})
	}
}

// A newer chart changes nothing that Kubernetes does not allow to change, and restarts no server by
// its mere version; neither does adding nodes.
func TestWhatDoesNotRestartServers(t *testing.T) {
	newer := func(chart *chartv2.Chart) { chart.Metadata.Version = "99.0.0" }
	for name, values := range cases {
		t.Run(name, func(t *testing.T) {
			before := mustRender(t, release{values: values})
			after := mustRender(t, release{values: values, upgrade: true, change: newer})
			for i, set := range before.statefulSets {
				if !equality.Semantic.DeepEqual(set.Spec, after.statefulSets[i].Spec) {
					t.Errorf("%s is another with a newer chart", set.Name)
				}
			}
		})
	}
	for name, values := range map[string][2]string{
		"nodes": {"nodes: {replicas: 3}", "nodes: {replicas: 9}"},
		"nodes of zones": {"nodes: {replicas: 3, zones: [a, b, c]}",
			"nodes: {replicas: 9, zones: [a, b, c]}"},
		"monitoring": {"", cases["monitoring"]},
	} {
		t.Run(name, func(t *testing.T) {
			before := mustRender(t, release{values: values[0]})
			after := mustRender(t, release{values: values[1], upgrade: true})
			for i, set := range before.statefulSets {
				if !equality.Semantic.DeepEqual(set.Spec.Template, after.statefulSets[i].Spec.Template) {
					t.Errorf("the pods of %s restart", set.Name)
				}
			}
		})
	}
}

// The fields of a StatefulSet that Kubernetes does not allow to change depend on no value that an
// upgrade may change.
func TestImmutableFields(t *testing.T) {
	before := mustRender(t, release{})
	after := mustRender(t, release{upgrade: true, values: `
image: {tag: next}
nodes: {replicas: 5, resources: {}, podLabels: {a: b}, extraArgs: [--cache=1GiB]}
core: {resources: {}, podLabels: {a: b}, extraArgs: [--cache=1GiB]}
locality: {region: eu}
tls: {enabled: true, certManager: {enabled: true}}
log: {level: debug}
`})
	for i, set := range before.statefulSets {
		was, is := set.Spec, after.statefulSets[i].Spec
		if was.ServiceName != is.ServiceName || was.PodManagementPolicy != is.PodManagementPolicy ||
			!equality.Semantic.DeepEqual(was.Selector, is.Selector) ||
			!equality.Semantic.DeepEqual(was.VolumeClaimTemplates, is.VolumeClaimTemplates) {
			t.Errorf("%s: a field that cannot change has changed", set.Name)
		}
	}
}
