package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestChildRunsOnItsProcessors sees that a child is kept to its processors and the parent is not.
func TestChildRunsOnItsProcessors(t *testing.T) {
	before, err := Processors()
	if err != nil {
		t.Fatal(err)
	}
	last := before[len(before)-1]
	log := filepath.Join(t.TempDir(), "log")
	p, err := Start(Config{Name: "child", Path: "/bin/sh", Log: log, Processors: []int{last},
		Args: []string{"-c", "grep Cpus_allowed_list /proc/self/status"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	said, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if fields := strings.Fields(string(said)); len(fields) != 2 || fields[1] != fmt.Sprint(last) {
		t.Errorf("the child says %q, want processor %d", said, last)
	}
	if after, err := Processors(); err != nil || !slices.Equal(after, before) {
		t.Errorf("the parent may run on %v, before on %v (%v)", after, before, err)
	}
}
