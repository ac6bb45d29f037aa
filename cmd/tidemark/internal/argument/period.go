package argument

import (
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// Period is a flag with a duration that may be long: "10s", "1h30m", or whole days, "14d".
type Period time.Duration

const day = 24 * time.Hour

// Set implements pflag.Value.
func (p *Period) Set(text string) error {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return exit.Usagef("%q is no number of days: use for instance 14d", text)
		}
		*p = Period(time.Duration(n) * day)
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return exit.Usagef("%q is no time: use for instance 10s, 90m, 24h or 14d", text)
	}
	*p = Period(d)
	return nil
}

// String implements pflag.Value.
func (p *Period) String() string { return FormatPeriod(time.Duration(*p)) }

// Type implements pflag.Value.
func (*Period) Type() string { return "period" }

// FormatPeriod formats a duration in the form that Set parses: whole days as days.
func FormatPeriod(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	if d%time.Minute == 0 {
		text = strings.TrimSuffix(text, "0s")
	}
	if d%time.Hour == 0 {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
