package exact

import "reflect"

// FilledLists is v with an empty slice in place of each nil one, but for bytes and for what is behind a map or an
// interface in it. What it points to is changed as well.
func FilledLists(v any) any {
	from := reflect.ValueOf(v)
	if !from.IsValid() {
		return v
	}
	to := reflect.New(from.Type()).Elem()
	to.Set(from)
	fill(to)
	return to.Interface()
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous && f.Type.Kind() == reflect.Struct {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fill(v.Index(i))
		}
	}
}
