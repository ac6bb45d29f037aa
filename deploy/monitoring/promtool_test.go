package monitoring

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const ruleTests = "rules/tidemark.rules.test.yaml"

// promtool says that the rules are right, and that each alert fires when it should.
func TestRulesPassPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed; `make monitoring-check` says how to get it")
	}
	for _, args := range [][]string{
		{"check", "rules", "rules/tidemark.rules.yaml"},
		{"test", "rules", ruleTests},
	} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// promtool's cases have, for each alert, one in which it fires and one in which it does not.
func TestAlertsHaveCases(t *testing.T) {
	text, err := os.ReadFile(ruleTests)
	if err != nil {
		t.Fatal(err)
	}
	fires, quiet := make(map[string]bool), make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "- name: ")
		if !ok {
			continue
		}
		alert, what, _ := strings.Cut(name, " ")
		switch {
		case what == "fires":
			fires[alert] = true
		case strings.HasPrefix(what, "does not fire "):
			quiet[alert] = true
		default:
			t.Errorf("the case %q says neither \"fires\" nor \"does not fire\"", name)
		}
	}
	for _, a := range Alerts() {
		if !fires[a.Name] || !quiet[a.Name] {
			t.Errorf("%s needs a case %q and one %q in %s", a.Name, a.Name+" fires",
				a.Name+" does not fire ...", ruleTests)
		}
	}
}
