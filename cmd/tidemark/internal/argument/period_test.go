package argument

import (
	"testing"
	"time"
)

func TestPeriods(t *testing.T) {
	for text, want := range map[string]time.Duration{"10s": 10 * time.Second, "14d": 14 * day,
		"90m": 90 * time.Minute, "24h": day, "0": 0} {
		var p Period
		if err := p.Set(text); err != nil || time.Duration(p) != want {
			t.Errorf("%q: %v, %v", text, p, err)
		}
		var again Period
		if err := again.Set(p.String()); err != nil || again != p {
			t.Errorf("%q is shown as %q", text, p.String())
		}
	}
	for _, text := range []string{"", "d", "-1d", "1.5d", "-3s", "99999d", "week"} {
		var p Period
		if err := p.Set(text); err == nil {
			t.Errorf("%q: %v", text, p)
		}
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 90 * time.Minute: "1h30m",
		48 * time.Hour: "2d", 10 * time.Second: "10s", 61 * time.Second: "1m1s"} {
		if got := FormatPeriod(d); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}
