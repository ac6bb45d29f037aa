package sim

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Effect is what a fault does. Its type is a struct whose exported fields are all its parameters.
// The parameters are drawn when the schedule is made, printed with it, and read back. A field is an
// int, a float64, a bool, a time.Duration, a string without spaces, such as a Target, or a []int. A
// number is at least 0 and at most maxNumber or maxTime, unless the tags least and most say
// otherwise. A string with the tag one is one of the words in the tag.
type Effect interface {
	// Begin makes the fault happen. It returns a description, and a function that ends the fault;
	// nil if nothing needs to be ended. The schedule calls Begin and end one at a time. A server
	// that is down, or has another fault, may get one more fault: real faults do not queue.
	Begin(w *World) (did string, end func() string)
}

// Fault is an effect that begins at the time At, and lasts for the time For (0: it has no end).
type Fault struct {
	At, For time.Duration
	Effect  Effect
}

// kind is a kind of fault.
type kind struct {
	name string
	// weight is how often the kind is drawn, in proportion to the other weights; 0: only themes and
	// other special draws use it.
	weight int
	// longest is the longest duration of the fault; 0: it has no end.
	longest time.Duration
	draw    func(*Dice) Effect
	effect  reflect.Type
}

var kinds = map[string]kind{}

// register makes a kind of fault known. Each file of a fault calls register for a package variable.
func register[E Effect](name string, weight int, longest time.Duration, draw func(*Dice) E) kind {
	k := kind{name, weight, longest, func(d *Dice) Effect { return draw(d) }, reflect.TypeFor[E]()}
	if _, twice := kinds[name]; twice || k.effect.Kind() != reflect.Struct {
		panic(fmt.Sprintf("sim: fault %s is registered twice, or is no struct", name))
	}
	kinds[name] = k
	return k
}

// Kinds returns the names of all kinds of faults.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// at draws a fault of the kind that begins at a time.
func (k kind) at(d *Dice, at time.Duration) Fault {
	f := Fault{At: at.Round(time.Millisecond), Effect: k.draw(d)}
	if k.longest > 0 {
		f.For = d.Between(20*time.Millisecond, k.longest)
	}
	return f
}

// kindOf returns the kind of an effect.
func kindOf(e Effect) kind {
	for _, k := range kinds {
		if k.effect == reflect.TypeOf(e) {
			return k
		}
	}
	panic(fmt.Sprintf("sim: %T is not registered", e))
}

// String returns the fault in one line, which ParseFault reads: begin, duration, kind, and
// parameters:
//
//	12.5s +8s crash server=2 unsynced=50
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v +%v %s", f.At, f.For, kindOf(f.Effect).name)
	v := reflect.ValueOf(f.Effect)
	for i := range v.NumField() {
		fmt.Fprintf(&b, " %s=%s", strings.ToLower(v.Type().Field(i).Name), formatField(v.Field(i)))
	}
	return b.String()
}

func formatField(v reflect.Value) string {
	if list, ok := v.Interface().([]int); ok {
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
	}
	return fmt.Sprint(v.Interface())
}

// ParseFault reads what Fault.String wrote.
func ParseFault(line string) (Fault, error) {
	bad := func(format string, args ...any) (Fault, error) {
		return Fault{}, fmt.Errorf("fault %q: "+format, append([]any{line}, args...)...)
	}
	words := strings.Fields(line)
	if len(words) < 3 || !strings.HasPrefix(words[1], "+") {
		return bad("want a time, +duration, a kind, and parameters")
	}
	var f Fault
	var err error
	if f.At, err = parseTime(words[0]); err != nil {
		return bad("%w", err)
	}
	if f.For, err = parseTime(words[1][1:]); err != nil {
		return bad("%w", err)
	}
	k, ok := kinds[words[2]]
	if !ok {
		return bad("no such kind; there are %v", Kinds())
	}
	v := reflect.New(k.effect).Elem()
	for _, word := range words[3:] {
		name, value, _ := strings.Cut(word, "=")
		of, ok := v.Type().FieldByNameFunc(
			func(s string) bool { return strings.EqualFold(s, name) })
		if !ok {
			return bad("a %s has no parameter %q", k.name, name)
		}
		field := v.FieldByIndex(of.Index)
		err := parseField(field, value)
		if err == nil {
			err = checkField(field, of.Tag)
		}
		if err != nil {
			return bad("%s: %w", name, err)
		}
	}
	f.Effect = v.Interface().(Effect)
	return f, nil
}

func parseField(field reflect.Value, text string) (err error) {
	switch p := field.Addr().Interface().(type) {
	case *time.Duration:
		*p, err = time.ParseDuration(text)
		return err
	case *int:
		*p, err = strconv.Atoi(text)
		return err
	case *float64:
		*p, err = strconv.ParseFloat(text, 64)
		return err
	case *bool:
		*p, err = strconv.ParseBool(text)
		return err
	case *[]int:
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(part)
			if err != nil && text != "" {
				return err
			} else if err == nil {
				*p = append(*p, n)
			}
		}
		return nil
	}
	if field.Kind() != reflect.String {
		return fmt.Errorf("a parameter of type %s cannot be read", field.Type())
	}
	field.SetString(text)
	return nil
}

const (
	// longestSchedule bounds the times of a schedule: sums of times are times, too.
	longestSchedule = 1000 * time.Hour
	// maxNumber and maxTime are the highest values of a parameter whose field has no tag most.
	maxNumber = 1_000_000
	maxTime   = time.Hour
)

// parseTime reads a time in a schedule.
func parseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		err = within(d, 0, longestSchedule, "", time.ParseDuration)
	}
	return d, err
}

// checkField says what is wrong with the value of a parameter. Effects may rely on checked values.
func checkField(field reflect.Value, tag reflect.StructTag) error {
	switch value := field.Interface().(type) {
	case time.Duration:
		return within(value, 0, maxTime, tag, time.ParseDuration)
	case int:
		return within(value, 0, maxNumber, tag, strconv.Atoi)
	case float64:
		return within(value, 0, maxNumber, tag, func(s string) (float64,
			error) {
			return strconv.ParseFloat(s, 64)
		})
	case []int:
		for _, n := range value {
			if err := within(n, 0, maxNumber, tag, strconv.Atoi); err != nil {
				return err
			}
		}
	case Target:
		return value.check()
	case string:
		if words, ok := tag.Lookup("one"); ok && !slices.Contains(strings.Fields(words), value) {
			return fmt.Errorf("%q is none of %v", value, strings.Fields(words))
		}
	}
	return nil
}

// within says whether a value is between two bounds. The tags least and most replace the bounds.
func within[T cmp.Ordered](value, least, most T, tag reflect.StructTag, parse func(string) (T,
	error)) (err error) {
	if text, ok := tag.Lookup("least"); ok {
		if least, err = parse(text); err != nil {
			return err
		}
	}
	if text, ok := tag.Lookup("most"); ok {
		if most, err = parse(text); err != nil {
			return err
		}
	}
	if !(value >= least && value <= most) { // false for NaN, too
		return fmt.Errorf("%v is not from %v to %v", value, least, most)
	}
	return nil
}
