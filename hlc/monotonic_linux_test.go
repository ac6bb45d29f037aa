package hlc

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// machine is the clocks of a machine.
type machine struct {
	awake, slept, set atomic.Int64
	// measured is how often the boot time was read.
	measured atomic.Int64
	// between is called between any two readings of clocks, if it is set.
	between func()
}

const origin = 1e18

func (m *machine) interrupt() {
	if m.between != nil {
		m.between()
	}
}

func (m *machine) wall() int64 { return origin + m.awake.Load() + m.slept.Load() + m.set.Load() }
func (m *machine) boot() int64 { return m.awake.Load() + m.slept.Load() }

func (m *machine) clock(t failer) *bootClock {
	c := &bootClock{
		pair: func() (wall, monotonic int64) {
			m.interrupt()
			wall = m.wall()
			m.interrupt()
			return wall, m.awake.Load()
		},
		monotonic: func() (int64, bool) {
			m.interrupt()
			return m.awake.Load(), true
		},
		boot: func() (int64, bool) {
			m.interrupt()
			m.measured.Add(1)
			return m.boot(), true
		},
	}
	if !c.start() {
		t.Fatalf("it does not start")
	}
	return c
}

type failer interface{ Fatalf(string, ...any) }

func TestMonotonicGoesOnInASuspendedMachine(t *testing.T) {
	m := &machine{}
	m.slept.Store(int64(time.Hour)) // before the process began
	c := m.clock(t)
	expect := func(after string, measured int64) {
		t.Helper()
		for range 3 {
			if now := c.now(); now != m.boot() {
				t.Errorf(
					"%s: it shows %v, the boot time is %v",
					after,
					time.Duration(now),
					time.Duration(m.boot()),
				)
			}
		}
		if n := m.measured.Swap(0); n != measured {
			t.Errorf("%s: the boot time was read %d times, want %d", after, n, measured)
		}
	}
	expect("at first", 1)
	m.awake.Add(int64(time.Hour))
	expect("an hour", 0)
	m.slept.Add(int64(5 * time.Second))
	expect("suspended", 1)
	m.awake.Add(int64(time.Second))
	expect("a second", 0)
	m.set.Add(int64(time.Hour))
	expect("set forward", 1)
	m.set.Add(-2 * int64(time.Hour))
	expect("set back", 1)
	m.slept.Add(int64(time.Minute))
	m.set.Add(int64(time.Minute))
	expect("suspended and set forward", 1)
	for range 100 { // slewed by 500 parts in a million for 10 s
		m.awake.Add(int64(100 * time.Millisecond))
		m.set.Add(int64(50 * time.Microsecond))
		c.now()
	}
	expect("slewed", 4)
	m.slept.Add(int64(time.Minute))
	expect("suspended again", 1)
}

// A clock that cannot be read exactly is read again, and nothing is forgotten meanwhile.
func TestMonotonicMeasuresAgain(t *testing.T) {
	m := &machine{}
	c := m.clock(t)
	m.slept.Add(int64(time.Minute))
	m.between = func() { m.awake.Add(int64(time.Millisecond)) }
	for range 3 {
		if now, boot := c.now(), m.boot(); now > boot || now < boot-int64(time.Second) {
			t.Errorf("it shows %v, the boot time is %v", time.Duration(now), time.Duration(boot))
		}
	}
	m.between = nil
	if now, boot := c.now(), m.boot(); now != boot {
		t.Errorf("it shows %v, the boot time is %v", time.Duration(now), time.Duration(boot))
	}
}

// Whatever happens between any two readings of clocks: a reading is one of the boot time between
// the beginning and the end of the call, but for what is not looked for, and none is below an
// earlier one.
func TestMonotonicInterrupted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{}
		c := m.clock(t)
		durations := rapid.SampledFrom([]int64{0, 0, 0, 1e3, 5e5, 2e6, 1e9, 1e12})
		m.between = func() {
			m.awake.Add(durations.Draw(t, "awake"))
			m.slept.Add(durations.Draw(t, "slept"))
			switch rapid.IntRange(0, 9).Draw(t, "set") {
			case 0:
				m.set.Add(3600e9 + 7e6)
			case 1:
				m.set.Add(-7200e9 - 11e6)
			}
		}
		aparts := []int64{origin}
		var last int64
		for range rapid.IntRange(1, 8).Draw(t, "readings") {
			if m.between(); rapid.Bool().Draw(t, "another") {
				// what a goroutine does that was interrupted long ago
				c.cameApart(rapid.SampledFrom(aparts).Draw(t, "apart"))
			}
			aparts = append(aparts, m.wall()-m.awake.Load())
			began := m.boot()
			now := c.now()
			if now > m.boot() {
				t.Fatalf("it shows %d, the boot time is %d", now, m.boot())
			}
			if now < last {
				t.Fatalf("it shows %d, and has shown %d", now, last)
			}
			if now < began-sleepLimit-sleepPrecision {
				t.Fatalf("it shows %d, the boot time was %d", now, began)
			}
			last = now
		}
	})
}

func TestMonotonicNeverGoesBack(t *testing.T) {
	m := &machine{}
	c := m.clock(t)
	var highest atomic.Int64
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				before := highest.Load()
				now := c.now()
				if now < before {
					t.Errorf("%d after %d", now, before)
					return
				}
				if boot := m.boot(); now > boot {
					t.Errorf("it shows %d, the boot time is %d", now, boot)
					return
				}
				for old := before; old < now &&
					!highest.CompareAndSwap(old, now); old = highest.Load() {
				}
			}
		})
	}
	for i := range 20_000 {
		m.awake.Add(1000)
		switch i % 10 {
		case 0:
			m.slept.Add(5e6)
		case 3:
			m.set.Add(-3e6)
		case 7:
			m.set.Add(2e6)
		}
	}
	close(stop)
	readers.Wait()
	if now := c.now(); now < m.boot()-sleepLimit {
		t.Errorf("it shows %d at last, the boot time is %d", now, m.boot())
	}
}

// Where a time carries no monotonic reading, the wall clock's does not take its place.
func TestMonotonicInAFarYear(t *testing.T) {
	epoch := time.Now()
	for _, year := range []int{1800, 1884, 2158, 2200} {
		if _, monotonic := pairOf(time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC),
			epoch); monotonic < 0 ||
			monotonic > int64(time.Since(epoch)) {
			t.Errorf("in %d it shows %v", year, time.Duration(monotonic))
		}
	}
	for _, at := range []time.Time{time.Unix(unix1885-1, 0), time.Unix(unix1885+1<<33, 0)} {
		if _, monotonic := pairOf(at, epoch); monotonic < 0 ||
			monotonic > int64(time.Since(epoch)) {
			t.Errorf("at %v it shows %v", at, time.Duration(monotonic))
		}
	}
	if at := time.Unix(unix1885, 0).UTC(); at != time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC) {
		t.Error(at)
	}
}

// The clocks of the system that runs this.
func TestSystemMonotonicIsTheBootTime(t *testing.T) {
	before, ok := readClock(clockBoot)
	if !ok {
		t.Skip("no CLOCK_BOOTTIME")
	}
	c := SystemMonotonic()
	first := c()
	for range 1000 {
		c()
	}
	passed := c() - first
	if after, _ := readClock(clockBoot); passed < 0 || passed > after-before+sleepPrecision {
		t.Errorf(
			"%v have passed by it, %v by CLOCK_BOOTTIME",
			time.Duration(passed),
			time.Duration(after-before),
		)
	}
}
