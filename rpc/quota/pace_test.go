package quota

import (
	"testing"
	"time"
)

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
		for range n {
			workers = append(workers, &worker{of, begin})
		}
	}
	worked := map[string]time.Duration{}
	for now := begin; now.Before(begin.Add(lasts + time.Second)); now = now.Add(piece) {
		for _, w := range workers {
			if !w.free.After(now) {
				w.free = now.Add(p.Charge(w.of, piece, now) + piece)
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
	p := NewPace(1, func() bool { return true })
	if worked := work(p, map[string]int{"a": 3}, 10*time.Second)["a"]; worked != 30*time.Second {
		t.Errorf("it has worked %s", worked)
	}
}

// TestPaceWhileProcessorsAreThere slows no party down.
func TestPaceWhileProcessorsAreThere(t *testing.T) {
	p := NewPace(1, func() bool { return false })
	worked := work(p, map[string]int{"a": 3, "b": 1}, 10*time.Second)
	if worked["a"] != 30*time.Second || worked["b"] != 10*time.Second {
		t.Errorf("they have worked %v", worked)
	}
}

// TestPaceWhileProcessorsAreShort: a party gets no more over many connections than over one, and no
// more than one part in 1+maxPace, once it has used up its burst; one that does little is not
// slowed down.
func TestPaceWhileProcessorsAreShort(t *testing.T) {
	p := NewPace(1, func() bool { return true })
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
		p.Charge("many", time.Millisecond, now)
		waited += p.Charge("little", 20*time.Microsecond, now)
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
	p := NewPace(1, func() bool { return short })
	now := time.Unix(1e9, 0)
	step := func() {
		p.Charge("a", time.Millisecond, now)
		p.Charge("b", time.Millisecond, now)
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
	if wait := p.Charge("a", time.Hour, now); wait != 0 {
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
		p := NewPace(x.processors, func() bool {
			use := float64(recent) / float64(checked)
			recent = 0
			asked++
			if use > x.enough {
				shorts++
				return true
			}
			return false
		})
		free := make([]time.Time, 2*x.workers)
		for ; now.Before(begin.Add(lasts)); now = now.Add(piece) {
			for i := range free {
				if !free[i].After(now) {
					free[i] = now.Add(p.Charge([]string{"a", "b"}[i%2], piece, now) + piece)
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
	p := NewPace(1, func() bool { return short })
	now := time.Unix(1e9, 0)
	for range 200 {
		p.Charge("a", 10*time.Millisecond, now)
		p.Charge("b", 0, now)
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
		p.Charge("a", 0, now)
		p.Charge("b", 0, now)
		now = now.Add(10 * time.Millisecond)
	}
	if ahead := p.Ahead("a", now); ahead > 0 || p.Short() {
		t.Errorf("processors are there again; a is ahead by %s", ahead)
	}
}
