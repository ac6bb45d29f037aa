package argument

import (
	"context"
	"fmt"
	"testing"
)

type hosts map[string][]string

func (h hosts) LookupHost(_ context.Context, host string) ([]string, error) {
	if found, ok := h[host]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("no host %q", host)
}

func TestListedAs(t *testing.T) {
	known := hosts{"localhost": {"::1", "127.0.0.1"}, "db-1": {"10.0.0.1"}, "db-2": {"10.0.0.2"}}
	for _, c := range []struct {
		address string
		list    []string
		want    string
	}{
		{"127.0.0.1:7400", []string{"localhost:7401", "localhost:7400"}, "localhost:7400"},
		{"localhost:7400", []string{"127.0.0.1:7400"}, "127.0.0.1:7400"},
		{"[::1]:7400", []string{"localhost:7400"}, "localhost:7400"},
		{"[0:0::1]:7400", []string{"[::1]:7400"}, "[::1]:7400"},
		{"10.0.0.1:7400", []string{"db-2:7400", "db-1:7400"}, "db-1:7400"},
		{"10.0.0.1:7400", []string{"db-1:7401", "db-2:7400", "unknown:7400", "127.0.0.1:7400"}, ""},
		{"unknown:7400", []string{"db-1:7400"}, ""},
		{"nonsense", []string{"db-1:7400"}, ""},
	} {
		if got := ListedAs(t.Context(), known, c.address, c.list); got != c.want {
			t.Errorf("%s in %v: %q, want %q", c.address, c.list, got, c.want)
		}
	}
}
