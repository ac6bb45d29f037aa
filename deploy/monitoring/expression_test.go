package monitoring

import (
	"fmt"
	"strings"
	"testing"
)

// What parse finds in expressions, and what it refuses.
func TestParse(t *testing.T) {
	for expr, want := range map[string]string{
		`up`:                                           "up[]",
		`sum(up == bool 0)`:                            "up[]",
		`a{x="1", y=~"b|{c}"} > 1e3`:                   "a[x y]",
		`rate(a_total{x="1"}[5m]) * 1.5`:               "a_total[x]",
		`rate(a_total[$__rate_interval])`:              "a_total[]",
		`sum by (p, q) (a) / sum by (p) (b offset 5m)`: "a[] b[] by p q p",
		`a and on (p) b unless ignoring(q) c`:          "a[] b[] c[] by p q",
		`a * on (p) group_left (q) b`:                  "a[] b[] by p q",
		`a * on (p) group_left b`:                      "a[] b[] by p",
		`histogram_quantile(0.99, sum by (le) (x))`:    "x[] by le",
		`a{x="1`:          "error",
		`a{x="1"`:         "error",
		`rate(a[5m`:       "error",
		`sum by (p`:       "error",
		`{__name__="up"}`: "error",
		`a {x="1"}`:       "error", // adding matchers would go wrong
	} {
		got := "error"
		if p, err := parse(expr); err == nil {
			var words []string
			for _, u := range p.uses {
				words = append(words, u.metric+fmt.Sprint(u.labels))
			}
			if len(p.labels) > 0 {
				words = append(words, "by "+strings.Join(p.labels, " "))
			}
			got = strings.Join(words, " ")
		}
		if got != want {
			t.Errorf("parse(%q) = %s, want %s", expr, got, want)
		}
	}
}

func TestSelected(t *testing.T) {
	got := selected(`sum by (p) (rate(a{x="1"}[5m])) / on (p) b`, `job="j"`)
	if want := `sum by (p) (rate(a{job="j",x="1"}[5m])) / on (p) b{job="j"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
