package workqueue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

var start = time.Unix(1_000_000, 0)

// TestScenarios plays the files in testdata:
//
//	queue least=N most=N [waiting=N] [longest=D]
//	passes D
//	short on|off            whether goroutines wait for processors
//	enter N [low]
//	leave N                 the N that began first
//	add NAME tenant=T cost=D [priority=high|low]
//	take N                  and Taken
//	expire NAME...
//	charge tenant=T cost=D [low]
//	close
//
// Each answers with what came of it, and the limit, the requests at work and those in the queue.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		now, short := start, false
		var q *Queue[string]
		var begun []Began // of the requests that are not answered
		shares := map[string]*Share{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			duration := func(s string) time.Duration {
				x, err := time.ParseDuration(s)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return x
			}
			argument := func(key string) (s string) {
				d.ScanArgs(t, key, &s)
				return s
			}
			number := func() (n int) {
				if _, err := fmt.Sscan(d.CmdArgs[0].Key, &n); err != nil {
					d.Fatalf(t, "%v", err)
				}
				return n
			}
			var out strings.Builder
			switch d.Cmd {
			case "queue":
				c := Config{Short: func() bool { return short }}
				d.ScanArgs(t, "least", &c.Least)
				d.ScanArgs(t, "most", &c.Most)
				d.MaybeScanArgs(t, "waiting", &c.MaxWaiting)
				var longest string
				if d.MaybeScanArgs(t, "longest", &longest) {
					c.Longest = duration(longest)
				}
				q = New[string](c)
			case "passes":
				now = now.Add(duration(d.CmdArgs[0].Key))
				return ""
			case "short":
				short = d.CmdArgs[0].Key == "on"
				return ""
			case "enter":
				low := 0
				if len(d.CmdArgs) > 1 && d.CmdArgs[1].Key == "low" {
					low = number()
				}
				began, ok := q.Enter(number(), low, now)
				if ok {
					begun = append(begun, slices.Repeat([]Began{began}, number())...)
				}
				fmt.Fprintf(&out, "%t; ", ok)
			case "leave":
				more := false
				for _, began := range begun[:number()] {
					more = q.Leave(began, 1)
				}
				begun = begun[number():]
				fmt.Fprintf(&out, "more may begin: %t; ", more)
			case "add":
				p := Normal
				var named string
				if d.MaybeScanArgs(t, "priority", &named) {
					p = map[string]Priority{"high": High, "low": Low}[named]
				}
				if err := q.Add(d.CmdArgs[0].Key, Tenant{User: argument("tenant")}, p,
					duration(argument("cost")), now); err != nil {
					fmt.Fprintf(&out, "%v; ", err)
				}
			case "take":
				items := q.Take(number(), now)
				for _, item := range items {
					fmt.Fprintf(&out, "%s after %s; ", item.Request, item.Waited)
					shares[item.Share.tenant.User] = item.Share
					begun = append(begun, item.Began)
				}
				q.Taken(len(items))
			case "expire":
				gone := q.Expire(func(name string) bool {
					return slices.ContainsFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == name })
				}, now)
				slices.Sort(gone)
				fmt.Fprintf(&out, "gone: %v; ", gone)
			case "charge":
				q.Charge(shares[argument("tenant")], duration(argument("cost")), time.Hour)
			case "close":
				left := q.Close()
				slices.Sort(left)
				fmt.Fprintf(&out, "left: %v; ", left)
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			f := q.Figures()
			fmt.Fprintf(&out, "limit %d, %d at work, %d wait\n", f.Limit, f.Working, f.Total())
			return out.String()
		})
	})
}

// TestOrderModel compares the queue with a list: whatever happens, the requests of one tenant and
// priority begin in the order in which they came, none is lost or begins twice, and no request
// begins beyond the limit.
func TestOrderModel(t *testing.T) {
	type kind struct {
		tenant   string
		priority Priority
	}
	type request struct {
		kind
		number int
	}
	rapid.Check(t, func(t *rapid.T) {
		now, short := start, false
		q := New[request](Config{Short: func() bool { return short }, Least: 2, Most: 8,
			MaxWaiting: 64})
		waiting := map[kind][]int{}
		number, queued, passed := 0, 0, 0
		var begun []Began // of the requests that have begun and are not answered
		// working is the number of requests that count as being at work.
		working := func() (n int) {
			for _, began := range begun {
				if q.working.looks.Load()-int64(began) < looksCounted {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := kind{rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"),
					Priority(rapid.IntRange(0, 2).Draw(t, "priority"))}
				number++
				err := q.Add(request{k, number}, Tenant{User: k.tenant}, k.priority,
					time.Duration(rapid.IntRange(0, 5).Draw(t, "cost"))*time.Millisecond, now)
				var full *FullError
				switch {
				case err == nil:
					waiting[k] = append(waiting[k], number)
					queued++
				case !errors.As(err, &full):
					t.Fatal(err)
				case full.Waiting < granted && queued < 64 && full.Wait <= 500*time.Millisecond:
					t.Fatalf("refused although little waits: %v", err)
				}
			},
			"take": func(t *rapid.T) {
				items := q.Take(rapid.IntRange(1, 6).Draw(t, "most"), now)
				for _, item := range items {
					k := item.Request.kind
					if len(waiting[k]) == 0 || waiting[k][0] != item.Request.number {
						t.Fatalf("%v begins, and %v wait", item.Request, waiting[k])
					}
					waiting[k] = waiting[k][1:]
					queued--
					begun = append(begun, item.Began)
					if limit := q.Figures().Limit; working() > limit {
						t.Fatalf("%d at work, the limit is %d", working(), limit)
					}
					others := 0
					for other, left := range waiting {
						if other.priority != Low {
							others += len(left)
						}
					}
					if k.priority != Low {
						passed++
					} else if passed < mostPassed && others > 0 {
						t.Fatalf("%v begins after %d others, and %d wait", item.Request, passed, others)
					} else {
						passed = 0
					}
					if rapid.Bool().Draw(t, "more expensive") {
						q.Charge(item.Share, 3*time.Millisecond, time.Second)
					}
				}
				if len(items) > 0 {
					if _, ok := q.Enter(1, 0, now); ok {
						t.Fatal("a request begins beside those that were taken and have not begun")
					}
				}
				q.Taken(len(items))
			},
			"expire": func(t *rapid.T) {
				divisor := rapid.IntRange(1, 5).Draw(t, "divisor")
				over := func(number int) bool { return number%divisor == 0 }
				for _, r := range q.Expire(func(r request) bool { return over(r.number) }, now) {
					if !slices.Contains(waiting[r.kind], r.number) || !over(r.number) {
						t.Fatalf("%v has expired", r)
					}
				}
				for k, left := range waiting {
					queued -= len(left)
					waiting[k] = slices.DeleteFunc(left, over)
					queued += len(waiting[k])
				}
			},
			"enter": func(t *rapid.T) {
				if began, ok := q.Enter(1, 0, now); ok {
					begun = append(begun, began)
					if queued > 0 {
						t.Fatalf("a request begins before %d that wait", queued)
					}
				} else if queued == 0 && working() < q.Figures().Limit {
					t.Fatalf("nothing waits, %d are at work, and a request does not begin", working())
				}
			},
			"leave": func(t *rapid.T) {
				if len(begun) > 0 {
					i := rapid.IntRange(0, len(begun)-1).Draw(t, "which")
					q.Leave(begun[i], 1)
					begun = slices.Delete(begun, i, i+1)
				}
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")) * time.Millisecond)
				short = rapid.Bool().Draw(t, "short")
			},
			"": func(t *rapid.T) {
				f := q.Figures()
				if f.Working != working() || f.Total() != queued {
					t.Fatalf("%+v, want %d at work and %d in the queue", f, working(), queued)
				}
				if f.Limit < 2 || f.Limit > 8 {
					t.Fatalf("the limit is %d", f.Limit)
				}
			},
		})
		left := q.Close()
		if len(left) != queued || q.Add(request{}, Tenant{}, Normal, 0, now) == nil {
			t.Fatalf("%d were left of %d", len(left), queued)
		}
	})
}

// TestShares: of tenants that always have requests in the queue, each is given the same, however
// many requests each has there and whatever they cost; and a tenant that asks for less than its
// share waits for a few requests of others at most.
func TestShares(t *testing.T) {
	now := start
	q := New[string](Config{Short: func() bool { return true }, Least: 1, Most: 1})
	costs := map[string]time.Duration{"small": time.Millisecond, "large": 10 * time.Millisecond,
		"many": time.Millisecond, "high": time.Millisecond}
	depth := map[string]int{"small": 2, "large": 2, "many": 1000, "high": 50}
	add := func(tenant string) {
		p := Normal
		if tenant == "high" {
			p = High // of no use against other tenants
		}
		if err := q.Add(tenant, Tenant{User: tenant}, p, costs[tenant], now); err != nil {
			t.Fatal(tenant, err)
		}
	}
	began, ok := q.Enter(1, 0, now)
	if !ok {
		t.Fatal("the first request waits")
	}
	for tenant, n := range depth {
		for range n {
			add(tenant)
		}
	}
	given := map[string]time.Duration{}
	modest, worst := 0, 0
	for i := range 4000 {
		if i%40 == 0 {
			if err := q.Add("modest", Tenant{User: "modest"}, Normal, time.Millisecond, now); err != nil {
				t.Fatal(err)
			}
			modest = i
		}
		q.Leave(began, 1)
		item := q.Take(1, now)[0]
		began = item.Began
		q.Taken(1)
		if item.Request == "modest" {
			worst = max(worst, i-modest)
			continue
		}
		given[item.Request] += costs[item.Request]
		add(item.Request)
	}
	if worst > len(depth) {
		t.Errorf("a tenant within its share waited for %d requests of others", worst)
	}
	for tenant, d := range given {
		if d < given["many"]*9/10-10*time.Millisecond || d > given["many"]*11/10+10*time.Millisecond {
			t.Errorf("%s was given %s, and another tenant %s", tenant, d, given["many"])
		}
	}
}

// TestManyTenants: tenants without a place of their own are served too, and places are used again.
func TestManyTenants(t *testing.T) {
	q := New[int](Config{Short: func() bool { return true }, Least: 1, Most: 1, MaxWaiting: 1 << 20})
	began := q.EnterAlways(1)
	for i := range 3 * maxTenants {
		if err := q.Add(i, Tenant{Keyspace: uint64(i)}, Normal, time.Millisecond, start); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(q.mu.shares); n > maxTenants+1 {
		t.Errorf("%d tenants have places", n)
	}
	seen := map[int]bool{}
	for range 3 * maxTenants {
		q.Leave(began, 1)
		items := q.Take(1, start)
		began = items[0].Began
		q.Taken(1)
		seen[items[0].Request] = true
	}
	if len(seen) != 3*maxTenants {
		t.Errorf("%d requests of %d began", len(seen), 3*maxTenants)
	}
}

// TestOrderWithoutPlace: the requests of a tenant without a place of its own keep their order, also
// when places become free while they wait.
func TestOrderWithoutPlace(t *testing.T) {
	q := New[int](Config{Short: func() bool { return true }, Least: 1, Most: 1, MaxWaiting: 1 << 20})
	began := q.EnterAlways(1)
	add := func(request int, tenant uint64, cost time.Duration) {
		if err := q.Add(request, Tenant{Keyspace: tenant}, Normal, cost, start); err != nil {
			t.Fatal(err)
		}
	}
	next := func() int {
		q.Leave(began, 1)
		items := q.Take(1, start)
		began = items[0].Began
		q.Taken(1)
		return items[0].Request
	}
	const late = maxTenants + 1
	for i := range uint64(maxTenants) {
		add(0, i+1, time.Millisecond)
	}
	for range 100 {
		add(1, late+1, time.Second) // another tenant without a place, before the late one
	}
	add(2, late, 0)
	for range maxTenants + 2 {
		next() // all tenants with places, which become free
	}
	add(3, late, 0)
	var order []int
	for q.Figures().Total() > 0 {
		if r := next(); r > 1 {
			order = append(order, r)
		}
	}
	if !slices.Equal(order, []int{2, 3}) {
		t.Errorf("began: %v", order)
	}
}

// BenchmarkEnter is what a message pays while nothing waits.
func BenchmarkEnter(b *testing.B) {
	q := New[int](Config{Short: func() bool { return false }})
	now := time.Now()
	for b.Loop() {
		if began, ok := q.Enter(1, 0, now); ok {
			q.Leave(began, 1)
		}
	}
}

// TestAPauseIsNotCharged: a request that was measured while the process stood still does not put its
// tenant behind all others for as long.
func TestAPauseIsNotCharged(t *testing.T) {
	q := New[string](Config{Least: 1, Most: 1})
	paused, busy := Tenant{User: "paused"}, Tenant{User: "busy"}
	add := func(request string, of Tenant) {
		t.Helper()
		if err := q.Add(request, of, Normal, time.Millisecond, start); err != nil {
			t.Fatal(err)
		}
	}
	next := func() Item[string] {
		t.Helper()
		items := q.Take(1, start)
		if len(items) != 1 {
			t.Fatal("nothing begins")
		}
		q.Taken(1)
		q.Leave(items[0].Began, 1)
		return items[0]
	}
	add("measured", paused)
	const most = 25 * time.Millisecond
	q.Charge(next().Share, time.Second, most)
	add("later", paused)
	for i := range 200 {
		add(fmt.Sprint(i), busy)
	}
	for n := 0; next().Request != "later"; n++ {
		if n > int(2*most/time.Millisecond) {
			t.Fatalf("%d ms of work of another tenant came first", n)
		}
	}
}
