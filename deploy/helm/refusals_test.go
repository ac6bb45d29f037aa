package helm

import (
	"strings"
	"testing"
)

// Values that make no cluster are refused, with an error that names them.
func TestRefusals(t *testing.T) {
	tls := "tls: {enabled: true, secretName: s, clientCA: {secretName: c}}\n"
	for _, c := range []struct{ name, values, refused string }{
		{"no place of the image", `image: {repository: ""}`, "give image.repository"},
		{"no version of the image", `image: {tag: ""}`, "give image.tag"},
		{"two core servers", "core: {replicas: 2}", "/core/replicas"},
		{"four core servers", "core: {replicas: 4}", "/core/replicas"},
		{"no core server", "core: {replicas: 0}", "/core/replicas"},
		{"half a node", "nodes: {replicas: 1.5}", "/nodes/replicas"},
		{"a value that there is not", "nodes: {replica: 1}", "replica"},
		{"a group that there is not", "node: {replicas: 1}", "node"},
		{"a size without unit", "core: {storage: {size: 10}}", "/core/storage/size"},
		{"a port that cannot be", "ports: {http: 70000}", "/ports/http"},
		{"a grace that is too short", "terminationGracePeriodSeconds: 5",
			"/terminationGracePeriodSeconds"},
		{"--insecure", "core: {extraArgs: [--insecure]}", "/core/extraArgs/0"},
		{"--insecure=true", "nodes: {extraArgs: [--insecure=true]}", "/nodes/extraArgs/0"},
		{"a flag that the chart sets", "nodes: {extraArgs: [--listen=:1]}",
			"the chart itself sets --listen"},
		{"an argument that is no flag", "core: {extraArgs: [demo]}", "/core/extraArgs/0"},
		{"a zone that is no name", "nodes: {zones: [Europe/West]}", "/nodes/zones/0"},
		{"a zone twice", "nodes: {zones: [a, {name: a, zone: b}]}", "listed twice"},
		{"more zones than nodes", "nodes: {replicas: 2, zones: [a, b, c]}", "more zones than servers"},
		{"more zones than core servers", "core: {replicas: 1, zones: [a, b]}",
			"more zones than servers"},
		{"zones for some of the data", "{combined: true, nodes: {replicas: 3, zones: [a]}}",
			"to all servers that hold data"},
		{"zones in two ways", "{nodes: {zones: [a]}, locality: {fromPodLabels: true}}",
			"give one of them"},
		{"a rollout of nothing", "rollout: node-x", `no StatefulSet "node-x"; there are core, node`},
		{"TLS without certificates", "tls: {enabled: true}", "give tls.secretName"},
		{"TLS without an authority of clients", "tls: {enabled: true, secretName: s}", "tls.clientCA"},
		{"TLS by issuers without an authority of clients",
			"tls: {enabled: true, certManager: {enabled: true, clientIssuerRef: {name: x}}}",
			"tls.clientCA"},
		{"TLS from two sources", "tls: {enabled: true, secretName: s, certManager: {enabled: true}}",
			"give one of them"},
		{"TLS that is off", "tls: {secretName: s}", "tls.enabled is false"},
		{"administrators without TLS", "tls: {admins: [me]}", "tls.enabled is false"},
		{"two places for an authority",
			"tls: {enabled: true, secretName: s, clientCA: {secretName: c, configMapName: d}}",
			"not both"},
		{"TLS and a secret", tls + "clusterSecret: {existingSecret: s}", "for servers without TLS"},
		{"a name with a dot", "fullnameOverride: a.b", "/fullnameOverride"},
		{"a name that begins with a digit", "fullnameOverride: 1a", "has to begin with a letter"},
		{"a name of a node's variable", "extraEnv: [{name: POD_NAME, value: x}]", "/extraEnv/0/name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := render(release{values: c.values})
			if err == nil {
				t.Fatal("it is taken")
			}
			if !strings.Contains(strings.ReplaceAll(err.Error(), ".", "/"),
				strings.ReplaceAll(c.refused, ".", "/")) {
				t.Errorf("got %v; want %q", err, c.refused)
			}
		})
	}
	if _, err := render(release{values: tls}); err != nil {
		t.Errorf("what the others differ from is refused: %v", err)
	}
}
