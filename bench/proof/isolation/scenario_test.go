package isolation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var levels = map[string]Level{
	"snapshot": SnapshotIsolation, "serialisable": Serialisable,
	"session": StrongSessionSerialisable, "strict": StrictSerialisable,
}

// TestScenarios runs the histories in testdata. The command "check" has the options level
// (snapshot, serialisable, session or strict; default strict), key-realtime, by-timestamp and
// forbid. It prints whether the level holds, and all findings.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "check" {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			options := Options{Level: StrictSerialisable}
			for _, argument := range d.CmdArgs {
				switch argument.Key {
				case "level":
					level, known := levels[argument.Vals[0]]
					if !known {
						d.Fatalf(t, "unknown level %q", argument.Vals[0])
					}
					options.Level = level
				case "key-realtime":
					options.KeyRealTime = true
				case "by-timestamp":
					options.VersionsByTimestamp = true
				case "forbid":
					for _, name := range argument.Vals {
						options.Forbidden = append(options.Forbidden, Anomaly(name))
					}
				default:
					d.Fatalf(t, "unknown option %q", argument.Key)
				}
			}
			history, err := Parse(d.Input)
			if err != nil {
				return fmt.Sprintf("error: %v", err)
			}
			again, err := Parse(text(history))
			if err != nil || text(again) != text(history) {
				t.Errorf("%s: what was printed does not read back: %v\n%s", d.Pos, err,
					text(history))
			}
			report, err := Check(history, options)
			if err != nil {
				return fmt.Sprintf("error: %v", err)
			}
			var b strings.Builder
			if report.Err() == nil {
				b.WriteString("holds\n")
			} else {
				b.WriteString("broken\n")
			}
			for _, f := range report.Findings {
				if !f.Breaks {
					b.WriteString("(allowed) ")
				}
				b.WriteString(f.String() + "\n")
			}
			return b.String()
		})
	})
}

func text(history []Transaction) string {
	var b strings.Builder
	for i := range history {
		b.WriteString(history[i].String() + "\n")
	}
	return b.String()
}
