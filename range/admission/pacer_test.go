package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// TestScenarios plays the files in testdata: a load, and a pacer of one class.
//
//	pacer idle=N busy=N [longest=D] [in-turn] [burst=D]
//	passes D
//	request                a foreground request comes
//	report busy|idle       another Load says so
//	load                   whether the node is busy
//	work took=D [awaited|urgent]   the pause after a piece of work
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		start := time.Unix(1_000_000, 0)
		now := start
		load := NewLoad(now)
		var p *Pacer
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			duration := func(s string) time.Duration {
				x, err := time.ParseDuration(s)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return x
			}
			switch d.Cmd {
			case "pacer":
				c := Class{InTurn: d.HasArg("in-turn")}
				d.ScanArgs(t, "idle", &c.Idle)
				d.ScanArgs(t, "busy", &c.Busy)
				for key, to := range map[string]*time.Duration{"longest": &c.Longest,
					"burst": &c.Burst} {
					var s string
					if d.MaybeScanArgs(t, key, &s) {
						*to = duration(s)
					}
				}
				p = NewPacer(c, load)
				return ""
			case "passes":
				now = now.Add(duration(d.CmdArgs[0].Key))
				return ""
			case "request":
				noted := load.Noted(now)
				if !noted {
					load.Note(now)
				}
				return fmt.Sprintf("noted before: %t\n", noted)
			case "report":
				load.Report(now, d.CmdArgs[0].Key == "busy")
				return ""
			case "load":
				return fmt.Sprintf("busy: %t\n", load.Busy(now))
			case "work":
				by := Low
				switch {
				case d.HasArg("awaited"):
					by = Awaited
				case d.HasArg("urgent"):
					by = Urgent
				}
				var took string
				d.ScanArgs(t, "took", &took)
				var out strings.Builder
				fmt.Fprintf(&out, "pause %s\n", p.Pause(now, duration(took), by))
				return out.String()
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

// TestRateModel: however many senders share a pacer by bytes, no more has flowed at any time than
// the rate gives, plus one burst; and they are not kept waiting for more than that takes.
func TestRateModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const rate = 1 << 20
		p := NewPacer(Snapshot, nil)
		start := time.Unix(1_000_000, 0)
		now, sent, last := start, 0, start
		for range rapid.IntRange(1, 50).Draw(t, "pieces") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")) * time.Millisecond)
			n := rapid.IntRange(0, 1<<18).Draw(t, "bytes")
			flows := now.Add(p.Pause(now, Worth(n, rate), Low))
			if flows.Before(last) {
				t.Fatalf("a piece may flow at %s, and one before it at %s", flows, last)
			}
			last = flows
			sent += n
			if most := float64(rate) * (flows.Sub(start) + Snapshot.Burst).Seconds(); float64(
				sent,
			) > most+1 {
				t.Fatalf("%d bytes after %s, allowed are %.0f", sent, flows.Sub(start), most)
			}
			if flows.Sub(start).Seconds() > now.Sub(start).Seconds()+float64(sent)/rate {
				t.Fatalf("%d bytes have to wait until %s", sent, flows.Sub(start))
			}
		}
	})
}

// TestMembersModel compares Members with a list of the works.
func TestMembersModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 2
		m := NewMembers[int](most)
		works := map[int]int{}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				owner := rapid.IntRange(1, 4).Draw(t, "owner")
				want := works[owner] > 0 || len(works) < most
				if got := m.Join(owner); got != want {
					t.Fatalf("%d joins %v: %t", owner, works, got)
				}
				if want {
					works[owner]++
				}
			},
			"leave": func(t *rapid.T) {
				for owner := range works {
					m.Leave(owner)
					if works[owner]--; works[owner] == 0 {
						delete(works, owner)
					}
					return
				}
			},
			"": func(t *rapid.T) {
				if m.Len() != len(works) {
					t.Fatalf("%d owners, want %v", m.Len(), works)
				}
			},
		})
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(Collection, nil)
		began := time.Now()
		if err := p.Wait(t.Context(), began, time.Second, Low); err != nil ||
			time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := p.Wait(ctx, began, time.Second, Low); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if err := p.Wait(ctx, began, time.Second, Urgent); !errors.Is(
			err,
			context.DeadlineExceeded,
		) {
			t.Errorf("no pause, and %v", err)
		}
	})
}

// BenchmarkNoted is what a request pays.
func BenchmarkNoted(b *testing.B) {
	now := time.Now()
	l := NewLoad(now)
	for b.Loop() {
		if !l.Noted(now) {
			l.Note(now)
		}
	}
}
