package helm

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"k8s.io/apimachinery/pkg/labels"
)

// A ServiceMonitor finds each server once, by a service that has the HTTP port, and speaks TLS if
// the servers do.
func TestServiceMonitor(t *testing.T) {
	found := 0
	eachCase(t, func(t *testing.T, o *objects) {
		for _, monitor := range o.monitors {
			found++
			endpoint := monitor.Spec.Endpoints[0]
			for _, set := range o.statefulSets {
				times := 0
				for _, service := range o.services {
					if !selector(t, &monitor.Spec.Selector).Matches(labels.Set(service.Labels)) {
						continue
					}
					for _, port := range service.Spec.Ports {
						if port.Name == endpoint.Port && selects(service.Spec.Selector, set) {
							times++
						}
					}
				}
				if times != 1 {
					t.Errorf("the servers of %s are found %d times", set.Name, times)
				}
				scheme := "<none>"
				if endpoint.Scheme != nil {
					scheme = endpoint.Scheme.String()
				}
				if _, tls := flag(server(set), "tls-cert"); tls != (scheme == "https") {
					t.Errorf("scheme %s, and TLS %v", scheme, tls)
				}
			}
		}
	})
	if found == 0 {
		t.Error("no case has a ServiceMonitor")
	}
}

const someRules = `groups:
  - name: tidemark
    rules:
      - alert: Something
        expr: up == 0
        annotations:
          summary: "{{ $labels.instance }} is down"
`

// Rules and dashboards are taken from the files of the chart as they are, templates of Prometheus
// and Grafana with them; without files there are none.
func TestRulesAndDashboards(t *testing.T) {
	none := func(chart *chartv2.Chart) { chart.Files = nil }
	o := mustRender(t, release{values: cases["monitoring"], change: none})
	if len(o.rules) > 0 || len(o.configMaps) != 1 {
		t.Errorf("without files there are %d rules and %d ConfigMaps", len(o.rules), len(o.configMaps))
	}

	dashboard := `{"title": "Tidemark", "legend": "{{instance}}"}`
	operator := "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec:\n  " +
		string(bytes.ReplaceAll([]byte(someRules), []byte("\n"), []byte("\n  ")))
	for name, rules := range map[string]string{
		"of Prometheus": someRules, "of the operator": operator,
	} {
		t.Run(name, func(t *testing.T) {
			some := func(chart *chartv2.Chart) {
				chart.Files = []*common.File{
					{Name: "files/rules/tidemark.rules.yaml", Data: []byte(rules)},
					{Name: "files/dashboards/One_overview.json", Data: []byte(dashboard)},
				}
			}
			o := mustRender(t, release{values: cases["monitoring"], change: some})
			if len(o.rules) != 1 || len(o.rules[0].Spec.Groups) != 1 {
				t.Fatalf("rules: %v", o.rules)
			}
			rule := o.rules[0].Spec.Groups[0].Rules[0]
			if rule.Annotations["summary"] != "{{ $labels.instance }} is down" {
				t.Errorf("rule %v", rule)
			}
			seen := false
			for _, config := range o.configMaps {
				if text, ok := config.Data["One_overview.json"]; ok {
					seen = text == dashboard && config.Labels["grafana_dashboard"] == "1"
				}
			}
			if !seen {
				t.Error("the dashboard is not there")
			}
		})
	}
}

// The chart has what deploy/monitoring has, where that is there: `make helm-files` copies it.
func TestFilesAreThoseOfMonitoring(t *testing.T) {
	for _, kind := range []struct{ from, to, pattern string }{
		{"../monitoring/rules", "tidemark/files/rules", "*.rules.yaml"},
		{"../monitoring/dashboards", "tidemark/files/dashboards", "*.json"},
	} {
		paths, err := filepath.Glob(filepath.Join(kind.from, kind.pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(kind.to, filepath.Base(path)))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not in the chart as it is (%v): make helm-files", path, err)
			}
		}
		if len(paths) == 0 {
			continue
		}
		copies, err := filepath.Glob(filepath.Join(kind.to, kind.pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(copies) != len(paths) {
			t.Errorf("%s has %d files and %s %d: make helm-files", kind.to, len(copies), kind.from,
				len(paths))
		}
	}
}
