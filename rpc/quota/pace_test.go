package quota

import (
	"strconv"
	"testing"
	"time"
)

// charge gives how long a party that is charged has to wait.
func (p *Pace) charge(of string, costs time.Duration, now time.Time) time.Duration {
	wait, _ := p.Charge(of, costs, now)
	return wait
}

func always(s Strain) func(time.Time) Strain { return func(time.Time) Strain { return s } }

func strainOf(short bool) Strain {
	if short {
		return Short
	}
	return Relaxed
}

// work has parties work for a while, each as fast as it may: in pieces of a millisecond, from so
// many goroutines. It gives how much each has worked.
func work(p *Pace, parties map[string]int, lasts time.Duration) map[string]time.Duration {
	const piece = time.Millisecond
	type worker struct {
		of   string
		free time.Time
	}
	begin := time.Unix(1e9, 0)
	var workers []*worker
	for of, n := range parties {
		p.Useful(of, begin)
		for range n {
			workers = append(workers, &worker{of, begin})
		}
	}
	worked := map[string]time.Duration{}
	for now := begin; now.Before(begin.Add(lasts + time.Second)); now = now.Add(piece) {
		for _, w := range workers {
			if !w.free.After(now) {
				w.free = now.Add(p.charge(w.of, piece, now) + piece)
				if !now.Before(begin.Add(time.Second)) {
					worked[w.of] += piece
				}
			}
		}
	}
	return worked
}

// TestPaceAlone: one party is never slowed down, whatever it does.
func TestPaceAlone(t *testing.T) {
	p := NewPace(1, always(Short))
	if worked := work(p, map[string]int{"a": 3}, 10*time.Second)["a"]; worked != 30*time.Second {
		t.Errorf("it has worked %s", worked)
	}
}

// TestPaceWhileProcessorsAreThere slows no party down.
func TestPaceWhileProcessorsAreThere(t *testing.T) {
	p := NewPace(1, always(Relaxed))
	worked := work(p, map[string]int{"a": 3, "b": 1}, 10*time.Second)
	if worked["a"] != 30*time.Second || worked["b"] != 10*time.Second {
		t.Errorf("they have worked %v", worked)
	}
}

// TestPaceWhileProcessorsAreShort: a party gets no more over many connections than over one, and no
// more than one part in 1+maxPace, once it has used up its burst; one that does little is not
// slowed down.
func TestPaceWhileProcessorsAreShort(t *testing.T) {
	p := NewPace(1, always(Short))
	const seconds = 60
	little, waited := 0, time.Duration(0)
	begin := time.Unix(1e9, 0)
	worked := work(p, map[string]int{"one": 1, "many": 50}, seconds*time.Second)
	// And a piece for each connection every longestPause.
	most := seconds*time.Second/(1+maxPace) + 50*seconds*time.Second/longestPause*time.Millisecond
	for of, d := range worked {
		if d > most || d < seconds*time.Second/(1+maxPace)/2 {
			t.Errorf("%s has worked %s, at most %s", of, d, most)
		}
	}
	for now := begin.Add(seconds * time.Second); little < 1000; little++ {
		p.charge("many", time.Millisecond, now)
		waited += p.charge("little", 20*time.Microsecond, now)
		now = now.Add(7 * time.Millisecond)
	}
	if waited > 0 {
		t.Errorf("a party that does little has waited %s", waited)
	}
}

// TestPaceRecovers: when processors are there again, the multiple stays near where it was for a
// while, and pauses end within some seconds.
func TestPaceRecovers(t *testing.T) {
	short := true
	p := NewPace(1, func(time.Time) Strain { return strainOf(short) })
	now := time.Unix(1e9, 0)
	p.Useful("a", now)
	p.Useful("b", now)
	step := func() {
		p.charge("a", time.Millisecond, now)
		p.charge("b", time.Millisecond, now)
		now = now.Add(10 * time.Millisecond)
	}
	for range 100 {
		step()
	}
	if p.multiple != maxPace {
		t.Fatalf("the multiple is %g", p.multiple)
	}
	short = false
	for range 200 {
		step()
	}
	if p.multiple < 0.9*maxPace {
		t.Errorf("after two seconds the multiple is %g", p.multiple)
	}
	for range 1200 {
		step()
	}
	if p.multiple != 0 {
		t.Errorf("the multiple is %g", p.multiple)
	}
	if wait := p.charge("a", time.Hour, now); wait != 0 {
		t.Errorf("it waits %s", wait)
	}
}

// TestPaceSettles: two parties that want all of the processors, which are short beyond a known use,
// get most of that, and processors are short for little of the time; so also if there are many.
func TestPaceSettles(t *testing.T) {
	for _, x := range []struct {
		processors, workers int
		enough              float64
	}{{1, 4, 0.5}, {1, 4, 0.1}, {4, 16, 2.4}, {32, 64, 24}} {
		const piece, lasts, checked = time.Millisecond, time.Minute, 50 * time.Millisecond
		begin := time.Unix(1e9, 0)
		now, recent, all := begin, time.Duration(0), time.Duration(0)
		asked, shorts := 0, 0
		p := NewPace(x.processors, func(time.Time) Strain {
			use := float64(recent) / float64(checked)
			recent = 0
			asked++
			if use > x.enough {
				shorts++
				return Short
			}
			return Relaxed
		})
		p.Useful("a", begin)
		p.Useful("b", begin)
		free := make([]time.Time, 2*x.workers)
		for ; now.Before(begin.Add(lasts)); now = now.Add(piece) {
			for i := range free {
				if !free[i].After(now) {
					free[i] = now.Add(p.charge([]string{"a", "b"}[i%2], piece, now) + piece)
					recent += piece
					all += piece
				}
			}
		}
		use, share := float64(all)/float64(lasts), float64(shorts)/float64(asked)
		t.Logf("%d processors, short beyond %.1f: used %.2f, short at %.3f of the looks", x.processors,
			x.enough, use, share)
		if use < x.enough/2 || use > 1.2*x.enough || share > 0.1 {
			t.Errorf("%d processors, short beyond %.1f: used %.2f, short at %.3f of the looks",
				x.processors, x.enough, use, share)
		}
	}
}

// TestAhead: while processors are short it is known for how long a party would have to wait,
// however short a single pause is, and otherwise that no party waits.
func TestAhead(t *testing.T) {
	short := true
	p := NewPace(1, func(time.Time) Strain { return strainOf(short) })
	now := time.Unix(1e9, 0)
	p.Useful("a", now)
	p.Useful("b", now)
	for range 200 {
		p.charge("a", 10*time.Millisecond, now)
		p.charge("b", 0, now)
		now = now.Add(10 * time.Millisecond)
	}
	if !p.Short() {
		t.Error("processors are short, and it does not say so")
	}
	if ahead := p.Ahead("a", now); ahead < 2*longestPause {
		t.Errorf("a is ahead by %s", ahead)
	}
	if ahead := p.Ahead("b", now) + p.Ahead("c", now); ahead > 0 {
		t.Errorf("parties that do nothing are ahead by %s", ahead)
	}
	short = false
	for range 1500 {
		p.charge("a", 0, now)
		p.charge("b", 0, now)
		now = now.Add(10 * time.Millisecond)
	}
	if ahead := p.Ahead("a", now); ahead > 0 || p.Short() {
		t.Errorf("processors are there again; a is ahead by %s", ahead)
	}
}

// TestDebts: a party that owes waits, also while processors are not short and it is alone, for no
// longer than it owes at most, and others do not.
func TestDebts(t *testing.T) {
	const processors = 4
	p := NewPace(processors, always(Relaxed))
	now := time.Unix(1e9, 0)
	wait := func(of string) time.Duration { return p.charge(of, time.Millisecond, now) }

	p.Useful("a", now)
	p.Useful("b", now)
	p.Owe("a", processors*paceBurst, now)
	if w := wait("a"); w != 0 {
		t.Errorf("within its burst it waits for %s", w)
	}
	p.Owe("a", processors*time.Second, now)
	if w := wait("a"); w != time.Second {
		t.Errorf("it owes a second and its burst, and waits for %s", w)
	}
	if w := wait("b"); w != 0 {
		t.Errorf("another one waits for %s", w)
	}
	if a, b := p.Ahead("a", now), p.Ahead("b", now); a != time.Second || b != 0 {
		t.Errorf("ahead are they by %s and %s", a, b)
	}
	now = now.Add(paceForgets + paceChecked - time.Millisecond)
	_ = wait("b") // a, which has done nothing for long, is not forgotten
	if w := wait("a"); w != 0 {
		t.Errorf("it has paid, and waits for %s", w)
	}

	p.Useful("a", now)
	p.Owe("a", time.Hour, now)
	if w := wait("a"); w != longestPause {
		t.Errorf("it pauses for %s", w)
	}
	for range 20 {
		now = now.Add(mostDebt / 20)
		_ = wait("b")
	}
	if w := wait("a"); w != 0 {
		t.Errorf("it owes an hour still, or %s", w)
	}
}

// TestStrangers: all that a party does has a price before anything of it was of use, and again when
// it owes much, or has not been there for long.
func TestStrangers(t *testing.T) {
	p := NewPace(1, always(Relaxed))
	now := time.Unix(1e9, 0)
	// worked is for how long a party works in a second, by pieces of a millisecond.
	worked := func(of string) (sum time.Duration) {
		for end := now.Add(time.Second); now.Before(end); now = now.Add(time.Millisecond) {
			if p.Ahead(of, now) == 0 {
				p.charge(of, time.Millisecond, now)
				sum += time.Millisecond
			}
		}
		return sum
	}
	stranger := func(of, when string, want bool) {
		t.Helper()
		least, most := 900*time.Millisecond, time.Second
		if want {
			least, most = 0, (time.Second+paceBurst)/strangersPrice+time.Millisecond
		}
		if w := worked(of); w < least || w > most {
			t.Errorf("%s, %s, works for %s in a second", of, when, w)
		}
	}
	stranger("a", "new", true)
	now = now.Add(time.Second)
	if _, is := p.Charge("a", 0, now); !is {
		t.Error("a is known at once")
	}
	p.Useful("a", now)
	if _, is := p.Charge("a", 0, now); is {
		t.Error("a, which is useful, is a stranger")
	}
	stranger("a", "useful", false)
	stranger("b", "new", true)
	for range 3 * standingLasts / time.Minute {
		now = now.Add(time.Minute)
		p.charge("a", 1, now)
	}
	stranger("a", "useful, and there now and then", false)
	now = now.Add(standingLasts + 1)
	stranger("a", "away for long", true)

	p.Useful("a", now)
	p.Owe("a", lostStanding+time.Second, now)
	p.Useful("a", now) // it has to pay first
	now = now.Add(mostDebt)
	stranger("a", "in debt", true)
	now = now.Add(time.Second)
	p.Useful("a", now)
	stranger("a", "useful again", false)
}

// TestStandingsAreBounded: however many parties there were, few are remembered.
func TestStandingsAreBounded(t *testing.T) {
	p := NewPace(1, always(Relaxed))
	now := time.Unix(1e9, 0)
	for i := range 2 * standings {
		p.Useful(strconv.Itoa(i), now)
	}
	if len(p.known) > standings {
		t.Errorf("%d are remembered", len(p.known))
	}
	if _, ok := p.known[strconv.Itoa(2*standings-1)]; !ok {
		t.Error("the last one is not")
	}
}

// TestPaceWhileContended: parties that do much get a known part of contended processors if there
// are others that do little, and all of them if there are none, or but a stranger.
func TestPaceWhileContended(t *testing.T) {
	const lasts = 10 * time.Second
	for name, x := range map[string]struct {
		little, stranger bool
		part             float64
	}{
		"one does little":        {true, false, 1.0 / (1 + contendedPace)},
		"none does little":       {false, false, 1},
		"a stranger does little": {true, true, 1},
	} {
		p := NewPace(1, always(Contended))
		now := time.Unix(1e9, 0)
		p.Useful("much", now)
		p.Useful("as much", now)
		if !x.stranger {
			p.Useful("little", now)
		}
		free := map[string]time.Time{"much": now, "as much": now}
		worked := make(map[string]time.Duration)
		waited := time.Duration(0)
		for end := now.Add(lasts); now.Before(end); now = now.Add(time.Millisecond) {
			for of, at := range free {
				if !at.After(now) {
					free[of] = now.Add(p.charge(of, time.Millisecond, now) + time.Millisecond)
					worked[of] += time.Millisecond
				}
			}
			if x.little {
				waited += p.charge("little", 10*time.Microsecond, now)
			}
		}
		for of, d := range worked {
			if part := float64(d) / float64(lasts); part < 0.9*x.part || part > 1.2*x.part {
				t.Errorf("%s: %s gets %.3f of the time", name, of, part)
			}
		}
		if waited > 0 && !x.stranger {
			t.Errorf("%s: it has waited for %s", name, waited)
		}
	}
}

// TestManyStrangersBehindOneAddress: a host whose many clients have come at once, as after a
// restart of the server, waits no longer when one of them has had its answer.
func TestManyStrangersBehindOneAddress(t *testing.T) {
	p := NewPace(1, always(Relaxed))
	now := time.Unix(1e9, 0)
	for range 3000 {
		p.charge("gateway", time.Millisecond, now)
	}
	if ahead := p.Ahead("gateway", now); ahead < mostDebt-time.Second || ahead > mostDebt {
		t.Errorf("it owes %s", ahead)
	}
	p.Useful("gateway", now)
	if wait := p.charge("gateway", time.Millisecond, now); wait > 0 {
		t.Errorf("it waits for %s then", wait)
	}
}
