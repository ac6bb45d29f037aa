package argument

import (
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/hlc"
)

// MomentHelp says how a moment is written.
const MomentHelp = "a timestamp as commands print it, RFC 3339 (\"2026-11-20T09:30:00Z\"), " +
	`or a time ago ("-30s")`

// ParseMoment reads the value of --at. A time ago is measured from `now`, this machine's clock.
func ParseMoment(text string, now time.Time) (hlc.Timestamp, error) {
	if strings.HasPrefix(text, "-") {
		ago, err := time.ParseDuration(text)
		if err != nil {
			return hlc.Timestamp{},
				exit.Usagef("%q is not a time ago: use for instance -30s, -5m or -1h30m", text)
		}
		if then := now.Add(ago); then.Year() > 1970 {
			return hlc.FromTime(then), nil
		}
		return hlc.Timestamp{}, exit.Usagef("%q is before 1971: there is no such timestamp", text)
	}
	if ts, err := hlc.Parse(text); err == nil && !ts.IsZero() {
		return ts, nil
	}
	// Outside these years a timestamp, which counts nanoseconds, cannot say it.
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		switch year := t.UTC().Year(); {
		case year <= 1970:
			return hlc.Timestamp{}, exit.Usagef("%q is before 1971: there is no such timestamp", text)
		case year >= 2262:
			return hlc.Timestamp{}, exit.Usagef("%q is after 2261: there is no such timestamp", text)
		}
		return hlc.FromTime(t), nil
	}
	return hlc.Timestamp{}, exit.Usagef("%q is not a moment: give %s", text, MomentHelp)
}
