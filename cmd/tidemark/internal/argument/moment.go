package argument

import (
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/hlc"
)

// MomentHelp describes the formats of a moment.
const MomentHelp = "a timestamp as commands print it, RFC 3339 (\"2026-11-20T09:30:00Z\"), " +
	`or a time ago ("-30s")`

// Moment is the value of --at and of similar flags.
type Moment struct {
	text string
	at   hlc.Timestamp
	// ago is the distance from now, if relative.
	ago      time.Duration
	relative bool
}

// ParseMoment reads the value of --at.
func ParseMoment(text string) (Moment, error) {
	m := Moment{text: text}
	if strings.HasPrefix(text, "-") {
		ago, err := time.ParseDuration(text)
		if err != nil {
			return Moment{},
				exit.Usagef("%q is not a time ago: use for instance -30s, -5m or -1h30m", text)
		}
		m.ago, m.relative = ago, true
		return m, nil
	}
	var err error
	if m.at, err = hlc.Parse(text); err == nil && !m.at.IsZero() {
		return m, nil
	}
	// A timestamp counts nanoseconds, and cannot express times outside these years.
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		switch year := t.UTC().Year(); {
		case year <= 1970:
			return Moment{}, m.tooEarly()
		case year >= 2262:
			return Moment{}, exit.Usagef("%q is after 2261: there is no such timestamp", text)
		}
		m.at = hlc.FromTime(t)
		return m, nil
	}
	return Moment{}, exit.Usagef("%q is not a moment: give %s", text, MomentHelp)
}

func (m Moment) tooEarly() error {
	return exit.Usagef("%q is before 1971: there is no such timestamp", m.text)
}

// Relative reports whether the moment is relative to now: the cluster's clock measures it.
func (m Moment) Relative() bool { return m.relative }

// At returns the timestamp. now is used if the moment is relative.
func (m Moment) At(now hlc.Timestamp) (hlc.Timestamp, error) {
	if !m.relative {
		return m.at, nil
	}
	then := time.Unix(0, now.Wall).Add(m.ago)
	if then.UTC().Year() <= 1970 {
		return hlc.Timestamp{}, m.tooEarly()
	}
	return hlc.FromTime(then), nil
}
