package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// What an application sees of kv, and of its administration, is their own, plus hlc.Timestamp under
// kv's name and the interface that metrics are registered with: no message of the protocol, no type
// of a package below, and no variable that it could change.
func TestSDKSurface(t *testing.T) {
	for _, name := range []string{"kv", "kv/admin"} {
		t.Run(name, func(t *testing.T) { checkSurface(t, name) })
	}
}

func checkSurface(t *testing.T, name string) {
	out, err := exec.Command("go", "doc", "-all", module+"/"+name).Output()
	if err != nil {
		t.Fatalf("go doc: %v", err)
	}
	allowed := map[string]bool{"context": true, "hlc": true, "iter": true,
		"metric": true, "net": true, "slog": true, "time": true, "trace": true, "tls": true}
	if name != "kv" {
		allowed["kv"] = true
	}
	qualified := regexp.MustCompile(`\b([a-z]\w*)\.[A-Z]`)
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "VARIABLES") || strings.HasPrefix(line, "var ") {
			t.Errorf("%s exports variables: %s", name, line)
		}
		// Declarations begin at the margin, and their fields with a tab; prose is indented.
		if !strings.HasPrefix(line, "func ") && !strings.HasPrefix(line, "type ") &&
			!strings.HasPrefix(line, "\t") {
			continue
		}
		code, _, _ := strings.Cut(line, "//")
		for _, found := range qualified.FindAllStringSubmatch(code, -1) {
			if !allowed[found[1]] {
				t.Errorf("%s shows a type of package %s: %s", name, found[1],
					strings.TrimSpace(line))
			}
		}
	}
}
