use super::*;

#[test]
fn a_process_has_each_limit_of_the_kernel() {
    let cores = u64::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    let most = Limits { file_bytes: 1_000, command_memory_bytes: 2_000, ..Limits::default() };
    let in_a_group = vec![
        (Resource::Core, 0),
        (Resource::Fsize, 1_000),
        (Resource::Data, 2_000),
        (Resource::Nofile, 1_024),
        (Resource::Cpu, 8 * cores),
    ];
    let time = Duration::from_millis(7_500);
    assert_eq!(resources(&most, time, None, Memory::Command), in_a_group);
    let counted = [in_a_group, vec![(Resource::Nproc, 3)]].concat();
    assert_eq!(resources(&most, time, Some(3), Memory::Command), counted);
    let alone = |addresses| [counted.clone(), vec![(Resource::As, addresses)]].concat();
    assert_eq!(resources(&most, time, Some(3), Memory::Process), alone(1 << 30));
    let more = Limits { command_memory_bytes: 1 << 30, ..most };
    let mut wanted = alone(4 << 30);
    wanted[2].1 = 1 << 30;
    assert_eq!(resources(&more, time, Some(3), Memory::Process), wanted);
}
