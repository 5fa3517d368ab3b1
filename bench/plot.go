package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// figure is one plot: the entrants of several rows over what the rows vary.
type figure struct {
	file, title, x, y string
	rows              []string // in the order of x
	at                []float64
	metric            string
	logX, logY        bool
}

var figures = []figure{
	{"push-batch", "Push, one caller", "jobs in a push", "jobs/s",
		[]string{"push/batch=1", "push/batch=100", "push/batch=1000"}, []float64{1, 100, 1000}, "per_s", true, true},
	{"push-callers", "Push of one job", "callers", "jobs/s", []string{"push/callers=16", "push/callers=64",
		"push/callers=256"}, []float64{16, 64, 256}, "per_s", true, false},
	{"lock-pairs", "Lock pairs, plain client", "goroutines", "pairs/s", lockNames("lock"), []float64{1, 4, 16, 64, 256},
		"per_s", true, false},
	{"lock-piped", "Lock pairs, AutoPipeline", "goroutines", "pairs/s", lockNames("lock-piped")[1:],
		[]float64{4, 16, 64, 256}, "per_s", true, false},
	{"handover-idle", "Hand-over of a lock, idle holder", "waiters", "p50, us", handOverNames("idle"),
		[]float64{1, 10, 100, 1000}, "p50_us", true, false},
	{"handover-working", "Hand-over of a lock, holder works 3 ms", "waiters", "p50, us", handOverNames("working"),
		[]float64{1, 10, 100, 1000}, "p50_us", true, false},
	{"call-callers", "Calls of 32 B", "callers", "calls/s", []string{"call/callers=1", "call/callers=16",
		"call/callers=256"}, []float64{1, 16, 256}, "per_s", true, true},
	{"call-body", "Calls, 16 callers", "bytes each way", "calls/s", []string{"call/callers=16", "call/body=1000",
		"call/body=10000", "call/body=60000", "call/body=900000"}, []float64{32, 1000, 10_000, 60_000, 900_000},
		"per_s", true, true},
}

func lockNames(prefix string) []string {
	var names []string
	for _, n := range []int{1, 4, 16, 64, 256} {
		names = append(names, fmt.Sprintf("%s/goroutines=%d", prefix, n))
	}
	return names
}

func handOverNames(holder string) []string {
	var names []string
	for _, n := range []int{1, 10, 100, 1000} {
		names = append(names, fmt.Sprintf("handover/%s/waiters=%d", holder, n))
	}
	return names
}

// colours differ on white and on black, also for people who see red and green alike.
var colours = map[string]color.RGBA{
	"luatomic": {0x00, 0x72, 0xb2, 0xff},
}

var others = []color.RGBA{
	{0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xb0, 0x8a, 0x00, 0xff},
	{0x56, 0xb4, 0xe9, 0xff},
}

var grey = color.RGBA{0x80, 0x80, 0x80, 0xff} // the raw command, the axes and all text: readable on white and on black

func drawAll(r *result, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	drawn := 0
	for _, f := range figures {
		ok, err := f.draw(r, filepath.Join(folder, f.file+".svg"))
		if err != nil {
			return fmt.Errorf("%s: %w", f.file, err)
		}
		if ok {
			drawn++
		}
	}
	if drawn == 0 {
		return fmt.Errorf("the result has no row that a plot shows")
	}
	return nil
}

// draw reports false where the result lacks a row of the figure.
func (f *figure) draw(r *result, file string) (bool, error) {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Legend.Padding, p.Title.Padding = vg.Points(2), vg.Points(6)
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.title, f.x, f.y
	p.BackgroundColor = color.Transparent
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Color = grey
	}
	for _, line := range []*draw.LineStyle{&p.X.LineStyle, &p.Y.LineStyle, &p.X.Tick.LineStyle, &p.Y.Tick.LineStyle} {
		line.Color = grey
	}
	if f.logX {
		p.X.Scale = plot.LogScale{}
	}
	p.X.Tick.Marker = plot.ConstantTicks(f.ticks())
	p.Y.Tick.Marker = humanTicks{log: f.logY}
	if f.logY {
		p.Y.Scale = plot.LogScale{}
	} else {
		p.Y.Min = 0
	}
	p.Legend.Top, p.Legend.Left = true, true
	next := 0
	for _, name := range f.names(r) {
		points, kind := f.points(r, name)
		if len(points) == 0 {
			return false, nil
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return false, err
		}
		colour, known := colours[name]
		switch {
		case kind == raw:
			colour = grey
			line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		case !known:
			colour = others[next%len(others)]
			next++
		}
		line.Color, dots.Color = colour, colour
		line.Width = vg.Points(1.5)
		if kind == ours {
			line.Width = vg.Points(3)
		}
		dots.Shape = draw.CircleGlyph{}
		p.Add(line, dots)
		p.Legend.Add(name, line, dots)
	}
	if len(f.names(r)) == 0 {
		return false, nil
	}
	if !f.logY {
		p.Y.Max *= 1.25 // room for the legend
	} else {
		p.Y.Max *= 4
	}
	return true, save(p, file)
}

func save(p *plot.Plot, file string) error {
	canvas := vgsvg.New(16*vg.Centimeter, 10*vg.Centimeter)
	room := vg.Points(14) // for the last label of an axis
	p.Draw(draw.Crop(draw.New(canvas), 4, -room, 4, -4))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// names are the entrants of the figure's first row that the result has, without those that are no twin.
func (f *figure) names(r *result) []string {
	m := r.row(f.rows[0])
	if m == nil {
		return nil
	}
	var names []string
	for i := range m.Entrants {
		if len(m.Entrants[i].Metrics[f.metric]) > 0 && m.Entrants[i].Name != noTwin {
			names = append(names, m.Entrants[i].Name)
		}
	}
	return names
}

func (f *figure) points(r *result, name string) (points plotter.XYs, k kind) {
	for i, row := range f.rows {
		m := r.row(row)
		if m == nil {
			continue
		}
		if e := m.entrant(name); e != nil {
			if value, ok := e.median(f.metric); ok && value > 0 {
				points, k = append(points, plotter.XY{X: f.at[i], Y: value}), e.Kind
			}
		}
	}
	return points, k
}

func (f *figure) ticks() []plot.Tick {
	var ticks []plot.Tick
	for _, x := range f.at {
		ticks = append(ticks, plot.Tick{Value: x, Label: strings.ReplaceAll(human(x), ".0 k", " k")})
	}
	for i := range ticks {
		if x := f.at[i]; x < 10_000 && x == float64(int(x)) {
			ticks[i].Label = fmt.Sprint(int(x))
		}
	}
	return ticks
}

// humanTicks are gonum's ticks with labels such as 50 k.
type humanTicks struct{ log bool }

func (h humanTicks) Ticks(from, to float64) []plot.Tick {
	var ticks []plot.Tick
	if h.log {
		ticks = plot.LogTicks{Prec: -1}.Ticks(from, to)
	} else {
		ticks = plot.DefaultTicks{}.Ticks(from, to)
	}
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = strings.ReplaceAll(strings.ReplaceAll(human(ticks[i].Value), ".0 k", " k"), ".00", "")
		}
	}
	return ticks
}
