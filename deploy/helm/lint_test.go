package helm

import (
	"maps"
	"slices"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

// The linter of Helm has nothing to say, with any of the values, but that an icon is recommended.
func TestLint(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			values, err := release{values: cases[name]}.parse()
			if err != nil {
				t.Fatal(err)
			}
			linter := action.NewLint()
			linter.Strict, linter.Namespace = true, namespace
			result := linter.Run([]string{folder}, values)
			if result.TotalChartsLinted != 1 {
				t.Errorf("%d charts were looked at", result.TotalChartsLinted)
			}
			for _, err := range result.Errors {
				t.Error(err)
			}
			for _, message := range result.Messages {
				if message.Severity > support.InfoSev {
					t.Error(message)
				}
			}
		})
	}
}
