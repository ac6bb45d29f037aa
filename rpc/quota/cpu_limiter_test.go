package quota

import (
	"strconv"
	"testing"
	"time"
)

// charge gives how long a client that is charged has to wait.
func (l *CPULimiter) charge(of string, costs time.Duration, now time.Time) time.Duration {
	wait, _ := l.Charge(of, costs, now)
	return wait
}

// leastOf is the least share of a time.
func leastOf(d time.Duration) time.Duration { return time.Duration(float64(d) * leastShare) }

func always(short bool) func() bool { return func() bool { return short } }

// work has clients work for a while, each as fast as it may: in pieces of a millisecond, from so
// many goroutines. It gives how much each has worked.
func work(l *CPULimiter, clients map[string]int, lasts time.Duration) map[string]time.Duration {
	const piece = time.Millisecond
	type worker struct {
		of   string
		free time.Time
	}
	begin := time.Unix(1e9, 0)
	var workers []*worker
	for of, n := range clients {
		l.Verify(of, begin)
		for range n {
			workers = append(workers, &worker{of, begin})
		}
	}
	worked := map[string]time.Duration{}
	for now := begin; now.Before(begin.Add(lasts + time.Second)); now = now.Add(piece) {
		for _, w := range workers {
			if !w.free.After(now) {
				w.free = now.Add(l.charge(w.of, piece, now) + piece)
				if !now.Before(begin.Add(time.Second)) {
					worked[w.of] += piece
				}
			}
		}
	}
	return worked
}

// TestLimitAlone: one client is never slowed down, whatever it does.
func TestLimitAlone(t *testing.T) {
	l := NewCPULimiter(1, always(true))
	if worked := work(l, map[string]int{"a": 3}, 10*time.Second)["a"]; worked != 30*time.Second {
		t.Errorf("it has worked %s", worked)
	}
}

// TestLimitWhileProcessorsAreThere slows no client down.
func TestLimitWhileProcessorsAreThere(t *testing.T) {
	l := NewCPULimiter(1, always(false))
	worked := work(l, map[string]int{"a": 3, "b": 1}, 10*time.Second)
	if worked["a"] != 30*time.Second || worked["b"] != 10*time.Second {
		t.Errorf("they have worked %v", worked)
	}
}

// TestLimitWhileProcessorsAreShort: a client gets no more over many connections than over one, and
// no more than its least share, once it has used up its burst; one that does little is not slowed
// down.
func TestLimitWhileProcessorsAreShort(t *testing.T) {
	l := NewCPULimiter(1, always(true))
	const seconds = 60
	little, waited := 0, time.Duration(0)
	begin := time.Unix(1e9, 0)
	worked := work(l, map[string]int{"one": 1, "many": 50}, seconds*time.Second)
	// And a piece for each connection every longestWait.
	most := leastOf(seconds*time.Second) + burst + 50*seconds*time.Second/longestWait*time.Millisecond
	for of, d := range worked {
		if d > most || d < leastOf(seconds*time.Second)/2 {
			t.Errorf("%s has worked %s, at most %s", of, d, most)
		}
	}
	for now := begin.Add(seconds * time.Second); little < 1000; little++ {
		l.charge("many", time.Millisecond, now)
		waited += l.charge("little", 20*time.Microsecond, now)
		now = now.Add(7 * time.Millisecond)
	}
	if waited > 0 {
		t.Errorf("a client that does little has waited %s", waited)
	}
}

// TestLimitRecovers: when processors are there again, the share stays as low as it was for a
// while, and pauses end within some seconds.
func TestLimitRecovers(t *testing.T) {
	short := true
	l := NewCPULimiter(1, func() bool { return short })
	now := time.Unix(1e9, 0)
	l.Verify("a", now)
	l.Verify("b", now)
	step := func() {
		l.charge("a", time.Millisecond, now)
		l.charge("b", time.Millisecond, now)
		now = now.Add(10 * time.Millisecond)
	}
	for range 100 {
		step()
	}
	if l.share != leastShare {
		t.Fatalf("the share is %g", l.share)
	}
	short = false
	for range 200 {
		step()
	}
	if l.share > 1.1*leastShare {
		t.Errorf("after two seconds the share is %g", l.share)
	}
	for range 1200 {
		step()
	}
	if l.share != 1 {
		t.Errorf("the share is %g", l.share)
	}
	if wait := l.charge("a", time.Hour, now); wait != 0 {
		t.Errorf("it waits %s", wait)
	}
}

// TestLimitSettles: two clients that want all of the processors, which are short beyond a known
// use, get most of that, and processors are short for little of the time; so also if there are
// many.
func TestLimitSettles(t *testing.T) {
	for _, x := range []struct {
		processors, workers int
		enough              float64
	}{{1, 4, 0.5}, {1, 4, 0.1}, {4, 16, 2.4}, {32, 64, 24}} {
		const piece, lasts, checked = time.Millisecond, time.Minute, 50 * time.Millisecond
		begin := time.Unix(1e9, 0)
		now, recent, all := begin, time.Duration(0), time.Duration(0)
		asked, shorts := 0, 0
		l := NewCPULimiter(x.processors, func() bool {
			use := float64(recent) / float64(checked)
			recent = 0
			asked++
			if use > x.enough {
				shorts++
				return true
			}
			return false
		})
		l.Verify("a", begin)
		l.Verify("b", begin)
		free := make([]time.Time, 2*x.workers)
		for ; now.Before(begin.Add(lasts)); now = now.Add(piece) {
			for i := range free {
				if !free[i].After(now) {
					free[i] = now.Add(l.charge([]string{"a", "b"}[i%2], piece, now) + piece)
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

// TestDelay: while processors are short it is known for how long a client would have to wait,
// however short a single pause is, and otherwise that no client waits.
func TestDelay(t *testing.T) {
	short := true
	l := NewCPULimiter(1, func() bool { return short })
	now := time.Unix(1e9, 0)
	l.Verify("a", now)
	l.Verify("b", now)
	for range 200 {
		l.charge("a", 10*time.Millisecond, now)
		l.charge("b", 0, now)
		now = now.Add(10 * time.Millisecond)
	}
	if !l.Short() {
		t.Error("processors are short, and it does not say so")
	}
	if ahead := l.Delay("a", now); ahead < 2*longestWait {
		t.Errorf("a is ahead by %s", ahead)
	}
	if ahead := l.Delay("b", now) + l.Delay("c", now); ahead > 0 {
		t.Errorf("clients that do nothing are ahead by %s", ahead)
	}
	short = false
	for range 1500 {
		l.charge("a", 0, now)
		l.charge("b", 0, now)
		now = now.Add(10 * time.Millisecond)
	}
	if ahead := l.Delay("a", now); ahead > 0 || l.Short() {
		t.Errorf("processors are there again; a is ahead by %s", ahead)
	}
}

// TestPenalties: a client with penalties waits, also while processors are not short and it is
// alone, for no longer than it owes at most, and others do not.
func TestPenalties(t *testing.T) {
	const processors = 4
	l := NewCPULimiter(processors, always(false))
	now := time.Unix(1e9, 0)
	wait := func(of string) time.Duration { return l.charge(of, time.Millisecond, now) }

	l.Verify("a", now)
	l.Verify("b", now)
	l.Penalize("a", processors*burst, now)
	if w := wait("a"); w != 0 {
		t.Errorf("within its burst it waits for %s", w)
	}
	l.Penalize("a", processors*time.Second, now)
	if w := wait("a"); w != time.Second {
		t.Errorf("it owes a second and its burst, and waits for %s", w)
	}
	if w := wait("b"); w != 0 {
		t.Errorf("another one waits for %s", w)
	}
	if a, b := l.Delay("a", now), l.Delay("b", now); a != time.Second || b != 0 {
		t.Errorf("ahead are they by %s and %s", a, b)
	}
	now = now.Add(activeFor + lookEvery - time.Millisecond)
	_ = wait("b") // a, which has done nothing for long, is not forgotten
	if w := wait("a"); w != 0 {
		t.Errorf("it has paid, and waits for %s", w)
	}

	l.Verify("a", now)
	l.Penalize("a", time.Hour, now)
	if w := wait("a"); w != longestWait {
		t.Errorf("it pauses for %s", w)
	}
	for range 20 {
		now = now.Add(longestDelay / 20)
		_ = wait("b")
	}
	if w := wait("a"); w != 0 {
		t.Errorf("it owes an hour still, or %s", w)
	}
}

// TestUnverified: a client gets a small part of the processors before it has had an answer, and
// again when it has not been there for long.
func TestUnverified(t *testing.T) {
	l := NewCPULimiter(1, always(false))
	now := time.Unix(1e9, 0)
	// worked is for how long a client works in a second, by pieces of a millisecond.
	worked := func(of string) (sum time.Duration) {
		for end := now.Add(time.Second); now.Before(end); now = now.Add(time.Millisecond) {
			if l.Delay(of, now) == 0 {
				l.charge(of, time.Millisecond, now)
				sum += time.Millisecond
			}
		}
		return sum
	}
	unverified := func(of, when string, want bool) {
		t.Helper()
		least, most := 900*time.Millisecond, time.Second
		if want {
			least, most = 0, (time.Second+burst)/unverifiedPart+time.Millisecond
		}
		if w := worked(of); w < least || w > most {
			t.Errorf("%s, %s, works for %s in a second", of, when, w)
		}
	}
	unverified("a", "new", true)
	now = now.Add(time.Second)
	if _, verified := l.Charge("a", 0, now); verified {
		t.Error("a is verified at once")
	}
	l.Verify("a", now)
	if _, verified := l.Charge("a", 0, now); !verified {
		t.Error("a, which has had an answer, is not verified")
	}
	unverified("a", "verified", false)
	unverified("b", "new", true)
	for range 3 * verifiedFor / time.Minute {
		now = now.Add(time.Minute)
		l.charge("a", 1, now)
	}
	unverified("a", "verified, and there now and then", false)
	now = now.Add(verifiedFor + 1)
	unverified("a", "away for long", true)
	l.Verify("a", now)
	unverified("a", "verified again", false)
}

// TestClientsAreBounded: however many clients there were, few are remembered.
func TestClientsAreBounded(t *testing.T) {
	l := NewCPULimiter(1, always(false))
	now := time.Unix(1e9, 0)
	for i := range 2 * maxClients {
		l.Verify(strconv.Itoa(i), now)
	}
	if len(l.clients) > maxClients {
		t.Errorf("%d are remembered", len(l.clients))
	}
	if _, ok := l.clients[strconv.Itoa(2*maxClients-1)]; !ok {
		t.Error("the last one is not")
	}
}

// TestManyBehindOneAddress: a host whose many clients have come at once, as after a
// restart of the server, waits no longer when one of them has had its answer.
func TestManyBehindOneAddress(t *testing.T) {
	l := NewCPULimiter(1, always(false))
	now := time.Unix(1e9, 0)
	for range 3000 {
		l.charge("gateway", time.Millisecond, now)
	}
	if ahead := l.Delay("gateway", now); ahead < longestDelay-time.Second || ahead > longestDelay {
		t.Errorf("it owes %s", ahead)
	}
	l.Verify("gateway", now)
	if wait := l.charge("gateway", time.Millisecond, now); wait > 0 {
		t.Errorf("it waits for %s then", wait)
	}
}
