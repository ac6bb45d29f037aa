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
	p := NewPace(func() bool { return true })
	if worked := work(p, map[string]int{"a": 3}, 10*time.Second)["a"]; worked != 30*time.Second {
		t.Errorf("it has worked %s", worked)
	}
}

// TestPaceWhileProcessorsAreThere slows no party down.
func TestPaceWhileProcessorsAreThere(t *testing.T) {
	p := NewPace(func() bool { return false })
	worked := work(p, map[string]int{"a": 3, "b": 1}, 10*time.Second)
	if worked["a"] != 30*time.Second || worked["b"] != 10*time.Second {
		t.Errorf("they have worked %v", worked)
	}
}

// TestPaceWhileProcessorsAreShort: a party gets no more over many connections than over one, and no
// more than one part in 1+maxPace, once it has used up its burst; one that does little is not
// slowed down.
func TestPaceWhileProcessorsAreShort(t *testing.T) {
	p := NewPace(func() bool { return true })
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

// TestPaceRecovers: when processors are there again, pauses end within some seconds.
func TestPaceRecovers(t *testing.T) {
	short := true
	p := NewPace(func() bool { return short })
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
		t.Fatalf("the multiple is %d", p.multiple)
	}
	short = false
	for range 500 {
		step()
	}
	if p.multiple != 0 {
		t.Errorf("the multiple is %d", p.multiple)
	}
	if wait := p.Charge("a", time.Hour, now); wait != 0 {
		t.Errorf("it waits %s", wait)
	}
}

// TestAhead: while processors are short it is known for how long a party would have to wait,
// however short a single pause is, and otherwise that no party waits.
func TestAhead(t *testing.T) {
	short := true
	p := NewPace(func() bool { return short })
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
	for range 500 {
		p.Charge("a", 0, now)
		p.Charge("b", 0, now)
		now = now.Add(10 * time.Millisecond)
	}
	if ahead := p.Ahead("a", now); ahead > 0 || p.Short() {
		t.Errorf("processors are there again; a is ahead by %s", ahead)
	}
}
