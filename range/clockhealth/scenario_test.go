package clockhealth

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios plays the files in testdata: a clock, the peers that it hears, and what is
// believed.
//
//	peers all=N [silent=N]     how many peers there are
//	start                      the process starts
//	run for=D [N=OFFSET ...]   time passes; every tick peers ping, N with a clock ahead by OFFSET,
//	                           and the process looks; every second it checks. Changes are reported
//	moves by=D                 the machine's clock moves; the monotonic one does not
//	stands for=D               the machine stands still: only its clock goes on
//	look                       one look
//	believe                    one look of a process that believes its clock
//	lease age=D                whether a lease that began so long ago counts
//	state                      what is believed
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		f := newFixture()
		ticks := 0
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			duration := func(key string) time.Duration {
				var s string
				d.ScanArgs(t, key, &s)
				x, err := time.ParseDuration(s)
				if err != nil {
					d.Fatalf(t, "%s: %v", key, err)
				}
				return x
			}
			switch d.Cmd {
			case "peers":
				f.all, f.silent = 0, 0
				d.ScanArgs(t, "all", &f.all)
				d.MaybeScanArgs(t, "silent", &f.silent)
			case "start":
				f.Start()
			case "run":
				offset := map[uint64]time.Duration{}
				for _, a := range d.CmdArgs {
					var peer uint64
					if _, err := fmt.Sscan(a.Key, &peer); err == nil {
						offset[peer] = duration(a.Key)
					}
				}
				for end := f.now + int64(duration("for")); f.now < end; {
					f.pass(100 * time.Millisecond)
					for peer, o := range offset {
						// The peer's clock does not take part in what happens to this one.
						f.Heard(peer, uint64(f.trueWall()+int64(o)))
					}
					f.report(&out, f.Look())
					if ticks++; ticks%10 == 0 {
						if changed, outvoted, s := f.Check(); changed {
							fmt.Fprintf(
								&out,
								"%s: outvoted=%t, off from %d of %d\n",
								f.since(),
								outvoted,
								s.Off,
								s.Peers,
							)
						}
					}
				}
			case "moves":
				f.wall.Advance(duration("by"))
				f.moved += duration("by")
			case "stands":
				f.wall.Advance(duration("for"))
				f.stood += duration("for")
			case "look":
				f.report(&out, f.Look())
			case "believe":
				f.Believe()
			case "lease":
				from, ok := f.LeaseFloor()
				fmt.Fprintf(&out, "%t\n", ok && f.now-int64(duration("age")) >= from)
			case "state":
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			s, jump := f.State()
			_, trusted := f.config.Clock.Reading()
			fmt.Fprintf(&out, "%s", [...]string{"trusted", "uncompared", "jumped", "outvoted"}[s])
			if jump != 0 {
				fmt.Fprintf(&out, " by %s", jump)
			}
			if !trusted {
				out.WriteString(", reading untrusted")
			}
			if off := time.Duration(f.config.Clock.Physical() - f.trueWall()); off != 0 {
				fmt.Fprintf(&out, ", time off by %s", off)
			}
			return out.String() + "\n"
		})
	})
}

func (f *fixture) report(out *strings.Builder, c Change) {
	if c.Jumped {
		fmt.Fprintf(out, "%s: jumped by %s\n", f.since(), c.Moved)
	}
	if c.Believed {
		fmt.Fprintf(
			out,
			"%s: believed, after a jump=%t, forward by %s\n",
			f.since(),
			c.AfterJump,
			c.Forward,
		)
	}
}

// since is the time since the beginning.
func (f *fixture) since() time.Duration { return time.Duration(f.now) - time.Hour }
