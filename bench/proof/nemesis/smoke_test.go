package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	smoke = flag.Bool("nemesis", false,
		"run the program itself for a short while, against bin/tidemark")
	network = flag.String("nemesis.network", "auto", "its -network")
)

// TestSmoke runs the program for half a minute: what it does to servers works, and servers bear it.
func TestSmoke(t *testing.T) {
	if !*smoke {
		t.Skip("runs with -nemesis, as root for all faults (make nemesis is the real thing)")
	}
	program := filepath.Join(t.TempDir(), "nemesis")
	if output, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	cmd := exec.Command(program, "-tidemark", "../../../bin/tidemark", "-duration", "30s",
		"-network", *network)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}
