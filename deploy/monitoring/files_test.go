package monitoring

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The generated files that are committed are what the generator writes, and there are no others.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files := Files()
	for name, want := range files {
		got, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes", name)
		}
	}
	committed, err := filepath.Glob("dashboards/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range committed {
		if _, ok := files[filepath.ToSlash(name)]; !ok {
			t.Errorf("%s comes from no dashboard", name)
		}
	}
	if t.Failed() {
		t.Log("run: go run ./deploy/monitoring/generate")
	}
}

// Each alert has what an operator needs, in words that fit on a screen.
func TestAlertsAreComplete(t *testing.T) {
	seen := make(map[string]bool)
	for _, a := range Alerts() {
		if seen[a.Name] {
			t.Errorf("there are two alerts %s", a.Name)
		}
		seen[a.Name] = true
		if !strings.HasPrefix(a.Name, "Tidemark") || a.Expr == "" || a.Summary == "" ||
			a.Description == "" || (a.Severity != Critical && a.Severity != Warning) {
			t.Errorf("the alert %s lacks something: %+v", a.Name, a)
		}
	}
}

// The dashboard of a cluster finds its alerts by the label job, so that has to be left in all.
func TestAlertsHaveTheLabelJob(t *testing.T) {
	for _, a := range Alerts() {
		p, err := parse(a.Expr)
		if err != nil {
			t.Errorf("%s: %v", a.Name, err)
			continue
		}
		if strings.Contains(a.Expr, "sum (") || strings.Contains(a.Expr, "sum(") ||
			strings.Contains(a.Expr, "max(") || strings.Contains(a.Expr, "min(") ||
			len(p.labels) > 0 && !slices.Contains(p.labels, "job") {
			t.Errorf("%s groups without the label job", a.Name)
		}
	}
}

// Each alert has an entry in the runbook, and no entry is of no alert.
func TestAlertsAreInTheRunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	entries := make(map[string]string)
	name := ""
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(line, "### "); ok {
			name = strings.TrimSpace(heading)
			entries[name] = ""
		} else if strings.HasPrefix(line, "## ") {
			name = ""
		} else if name != "" {
			entries[name] += line
		}
	}
	for _, a := range Alerts() {
		entry, ok := entries[a.Name]
		if !ok {
			t.Errorf("docs/runbook.md has no entry \"### %s\"", a.Name)
		}
		for _, part := range []string{"**Means.**", "**Look.**", "**Do.**"} {
			if ok && !strings.Contains(entry, part) {
				t.Errorf("the entry of %s in docs/runbook.md has no part %s", a.Name, part)
			}
		}
		delete(entries, a.Name)
	}
	for name := range entries {
		t.Errorf("docs/runbook.md has an entry of %s, which is no alert", name)
	}
}
