(* Reads orders from text and groups them by customer, as reports do. *)
let rows = 60000
let text =
  let b = Buffer.create 1000000 in
  for i = 0 to rows - 1 do Buffer.add_string b (Printf.sprintf "%d,name %d,%d,%d\n" i (i mod 977) i (i * 2)) done;
  Buffer.contents b
let () =
  for _ = 1 to 12 do
    let groups : (string, (int * int * string) list) Hashtbl.t = Hashtbl.create 1000 in
    List.iter (fun line ->
      match String.split_on_char ',' line with
      | [ _; name; a; b ] ->
        let old = try Hashtbl.find groups name with Not_found -> [] in
        Hashtbl.replace groups name ((int_of_string a, int_of_string b, a) :: old)
      | _ -> ()) (String.split_on_char '\n' text);
    Printf.printf "%d %d\n" (Hashtbl.length groups) (Hashtbl.fold (fun _ l n -> n + List.length l) groups 0)
  done
